// The page of a mover node: it asks the HTTP API of the node that served it, and draws what that says.
//
// Whatever the API says (names of files above all) may be anybody's: it becomes text, or the value of an attribute that
// is named here, and never HTML. Elements change only where what they show does, so that focus and selection stay.

const $ = (id) => document.getElementById(id);

// ---- Drawing ----

const shown = (inside) => inside.flat(Infinity).filter((x) => x !== undefined && x !== "");

// el describes an element: attributes that are undefined are left out, text is a string inside.
const el = (tag, attributes, ...inside) => ({ tag, attributes: attributes ?? {}, inside: shown(inside) });
const line = (...inside) => el("div", null, ...inside);
const small = (...inside) => el("div", null, el("small", null, ...inside));
const pill = (text, kind) => el("span", { class: kind ? `pill ${kind}` : "pill" }, text);
const fact = (name, ...inside) => el("div", null, el("dt", null, name), el("dd", null, ...inside));

function build(x) {
  if (typeof x === "string") return document.createTextNode(x);
  const node = document.createElement(x.tag);
  for (const [name, value] of Object.entries(x.attributes)) if (value !== undefined) node.setAttribute(name, value);
  node.append(...x.inside.map(build));
  return node;
}

const painted = new WeakMap(); // element: what it shows

function paint(target, ...inside) {
  inside = shown(inside);
  const now = JSON.stringify(inside);
  if (painted.get(target) === now) return;
  painted.set(target, now);
  target.replaceChildren(...inside.map(build));
}

// fillTable shows rows of {key, cells}: a row stays the same element as long as its key is there. The roles are said
// because the style for narrow screens takes them from the elements.
function fillTable(id, rows, none) {
  const table = $(id);
  const body = table.tBodies[0];
  const labels = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  for (const [role, elements] of [["table", [table]], ["rowgroup", [table.tHead, body]], ["row", table.tHead.rows], ["columnheader", table.tHead.rows[0].cells]]) {
    for (const element of elements) element.setAttribute("role", role);
  }
  const old = new Map([...body.rows].map((tr) => [tr.dataset.key, tr]));
  const keys = new Set(rows.map((row) => row.key));
  for (const [key, tr] of old) if (!keys.has(key)) tr.remove();
  rows.forEach((row, at) => {
    const tr = old.get(row.key) ?? build(el("tr", { "data-key": row.key, role: "row" }, labels.map((label) => el("td", { "data-label": label, role: "cell" }))));
    row.cells.forEach((cell, i) => paint(tr.cells[i], cell));
    if (body.rows[at] !== tr) body.insertBefore(tr, body.rows[at] ?? null);
  });
  table.hidden = rows.length === 0;
  note(id, rows.length === 0 ? none : "");
}

function note(id, text, bad = false) {
  const p = $(`${id}-note`);
  paint(p, text);
  p.classList.toggle("bad", bad);
}

function alarm(target, why) {
  target.hidden = !why;
  if (why) paint(target, el("strong", null, why.title), [why.detail, why.requestID && ` (request ${why.requestID})`].filter(Boolean).join(""));
}

// ---- Words ----

let clockSkew = 0; // milliseconds that the node's clock is ahead of the browser's
const now = () => Date.now() + clockSkew;

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (; n >= 999.5 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 ? n : n.toPrecision(3)} ${units[i]}`;
}

function bits(bytesPerSecond) {
  if (bytesPerSecond === null) return "–";
  const rate = bytesPerSecond * 8;
  for (const [unit, size] of [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) if (rate >= size) return `${(rate / size).toFixed(rate >= 10 * size ? 1 : 2)} ${unit}`;
  return `${Math.round(rate)} bit/s`;
}

// rateText makes the API's "8388608bit/s" readable.
const rateText = (text) => (/^\d+bit\/s$/.test(text) ? bits(parseInt(text, 10) / 8) : text);

// span is a duration, in two units where the first alone would say little.
function span(seconds) {
  if (seconds > 0 && seconds < 10) return `${Math.max(0.01, Number(seconds.toPrecision(2)))} s`;
  seconds = Math.max(0, Math.round(seconds));
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0 s";
  const [unit, size] = parts[first];
  const rest = parts[first + 1];
  const left = rest && seconds < 10 * size ? Math.floor((seconds % size) / rest[1]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${left ? ` ${left} ${rest[0]}` : ""}`;
}

const since = (time) => (now() - Date.parse(time)) / 1000;
const ago = (time) => `${span(Math.round(since(time)))} ago`;
const exact = (time) => new Date(time).toLocaleString();

// plain shows characters that are invisible, or that turn text around, as escapes: a name is shown as it is.
const plain = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

// pathOf is a path of the API; path_b64 stands for one that is not UTF-8.
function pathOf(of) {
  if (of.path_b64 === undefined) return plain(of.path ?? "");
  return plain(new TextDecoder().decode(Uint8Array.from(atob(of.path_b64), (c) => c.charCodeAt(0))));
}

function place(p) {
  if (!p.buffer) return `${p.node}:${pathOf(p)}`;
  const range = p.length !== undefined ? `+${p.offset ?? 0}+${p.length}` : p.offset ? `+${p.offset}` : "";
  return `${p.node}:buffer:${p.buffer}${range}`;
}

// reasonLine is why something ended; of a job that goes on, why its attempt before did.
const reasonLine = (why, goesOn = false) => el("div", { class: goesOn ? "warn-text" : "bad-text" }, goesOn ? "before: " : "", el("strong", null, why.code), `: ${plain(why.detail)}`);

// ---- Asking ----

let session = null; // {token, caller, ended: AbortController}

// Refusal is what the API says when it does not do what was asked, or that it does not answer.
class Refusal extends Error {
  constructor(problem, status) {
    super(problem.title);
    Object.assign(this, { title: problem.title || `HTTP status ${status}`, detail: problem.detail || "", code: problem.code, status, requestID: problem.request_id });
  }
}

const longestAnswer = 15000; // milliseconds

async function request(of, path, { method = "GET", headers = {}, signal } = {}) {
  let answer;
  try {
    // Addresses are relative, and nothing leads to another host: the token stays with this node.
    answer = await fetch(path, { method, signal, headers: { ...headers, Authorization: `Bearer ${of.token}` }, mode: "same-origin", credentials: "omit", cache: "no-store", redirect: "error" });
  } catch {
    if (!signal.aborted || signal.reason.name === "TimeoutError") reached(of, false);
    throw new Refusal({ title: "The node does not answer", detail: "Check that it runs and can be reached; this page tries again by itself." }, 0);
  }
  reached(of, true);
  const date = Date.parse(answer.headers.get("Date"));
  if (date && Math.abs(date - now()) > 2000) clockSkew = date - Date.now(); // the header has whole seconds
  if (answer.ok) return answer;
  throw new Refusal(await answer.json().catch(() => ({})), answer.status);
}

async function ask(path, options = {}) {
  const of = session;
  if (!of) throw new Refusal({ title: "Signed out" }, 0);
  const signal = AbortSignal.any([of.ended.signal, AbortSignal.timeout(longestAnswer)]);
  try {
    const answer = await request(of, path, { ...options, signal, headers: { Accept: options.accept ?? "application/json" } });
    const content = await (options.accept ? answer.text() : answer.json());
    if (of !== session) throw new Refusal({ title: "Signed out" }, 0);
    return content;
  } catch (why) {
    if (why.status === 401 && of === session) leave({ title: "The node does not take this token any more", detail: why.detail });
    if (why instanceof Refusal) throw why;
    throw new Refusal({ title: "The node's answer broke off", detail: "This page tries again by itself." }, 0);
  }
}

// ---- The node ----

const counters = new Map(); // key: {value, at, rate}

// perSecond is how fast a counter grows since it was last asked for; null the first time, and when it went back.
function perSecond(key, value) {
  const at = performance.now() / 1000;
  const before = counters.get(key);
  if (before && at - before.at < 0.5) return before.rate;
  const rate = before && value >= before.value ? (value - before.value) / (at - before.at) : null;
  counters.set(key, { value, at, rate });
  return rate;
}

const seen = { states: {}, devices: null, peers: [], ready: true, draining: false, rates: null }; // what several parts draw from

async function drawVersion() {
  const v = await ask("v1/version");
  let ready = true;
  try {
    await ask("readyz");
  } catch (why) {
    if (why.status !== 503) throw why;
    ready = false;
  }
  seen.ready = ready;
  document.title = `${v.node} – mover`;
  const state = seen.draining ? pill("draining", "warn") : ready ? pill("ready", "good") : pill("not ready", "bad");
  paint($("node"), el("strong", null, v.node), state, el("small", { title: `${v.revision || ""} ${v.go} ${v.platform}` }, `${v.version}, up ${span(since(v.started_at))}`),
    el("small", null, `you are ${session.caller.owner} (${session.caller.scope})`));
  drawAlarms();
}

// drawCounts takes the number of jobs in each state from the metrics, where they are counted already.
async function drawCounts() {
  const text = await ask("metrics", { accept: "text/plain" });
  seen.states = Object.fromEntries([...text.matchAll(/^mover_jobs\{state="(\w+)"\} (\d+)/gm)].map((m) => [m[1], Number(m[2])]));
  seen.draining = /^mover_draining 1/m.test(text);
  drawFigures();
  drawAlarms();
}

function drawFigures() {
  const count = (...states) => states.reduce((sum, state) => sum + (seen.states[state] ?? 0), 0);
  const rails = seen.peers.flatMap((p) => p.rails);
  const figures = [
    ["Sends", bits(seen.rates?.sent ?? null)], ["Receives", bits(seen.rates?.received ?? null)],
    ["Peers connected", `${seen.peers.filter((p) => p.state === "connected").length} of ${seen.peers.length}`],
    ["Rails up", `${rails.filter((r) => r.state === "up").length} of ${rails.length}`],
    ["Jobs under way", String(count("preparing", "running", "verifying", "publishing", "canceling"))],
    ["Jobs waiting", String(count("queued", "paused"))], ["Jobs not succeeded", String(count("failed", "partial", "expired"))],
  ];
  paint($("figures"), figures.map(([name, value]) => fact(name, value)));
}

// drawAlarms says what nobody should overlook, above everything.
function drawAlarms() {
  const alarms = [];
  const add = (kind, title, text) => alarms.push(el("div", { class: `alarm ${kind}` }, el("strong", null, title), text));
  const software = new Set((seen.devices?.devices ?? []).filter((d) => d.software).map((d) => d.name));
  const slow = seen.peers.flatMap((p) => p.rails.filter((r) => r.provider === "soft" || software.has(r.local_device)).map((r) => ({ peer: p.name, ...r })));
  const groups = Map.groupBy(slow, (r) => `to ${r.peer} over ${r.provider}: ${plain(r.reason)}`);
  const which = [...groups].map(([why, rails]) => line(`${rails.length} ${rails.length === 1 ? "rail" : "rails"} ${why}`));
  if (seen.devices && !seen.devices.hardware) {
    add("", "Software verbs: no RDMA hardware is in use, and this node is slow", [line(`Why: ${plain(seen.devices.reason)}`), which]);
  } else if (slow.length > 0) {
    add("", `${slow.length} of ${seen.peers.flatMap((p) => p.rails).length} rails run on software verbs, and are slow`, which);
  }
  if (seen.draining) add("warn", "This node is draining", "It takes no new jobs until its next start, or mover drain --undo.");
  else if (!seen.ready) add("warn", "This node takes no jobs now", "Its log says why.");
  paint($("alarms"), alarms);
}

const railKinds = { up: "good", paused: "warn", down: "bad", connected: "good", connecting: "busy", idle: "" };

async function drawPeers() {
  seen.peers = (await ask("v1/peers")).peers;
  seen.rates = { sent: null, received: null };
  const rows = [];
  for (const p of seen.peers) {
    const name = [line(el("strong", null, p.name)), small(p.addresses.join(", "))];
    const trouble = p.last_error ? el("div", { class: "bad-text" }, plain(p.last_error)) : undefined;
    const state = [line(pill(p.state, railKinds[p.state] ?? "bad")), p.since ? small(`for ${span(since(p.since))}`) : undefined];
    if (p.rails.length === 0) rows.push({ key: p.name, cells: [name, [state, trouble], small("no session"), [], [], [], []] });
    p.rails.forEach((r, i) => {
      const key = [p.name, r.local_device, r.local_port, r.remote_device, r.remote_port].join("|");
      const sent = perSecond(`${key} sent`, r.sent_bytes);
      const received = perSecond(`${key} received`, r.received_bytes);
      if (sent !== null) seen.rates.sent += sent;
      if (received !== null) seen.rates.received += received;
      rows.push({ key, cells: [
        name, [state, i === 0 ? trouble : undefined],
        [line(`${r.local_device}/${r.local_port} – ${r.remote_device}/${r.remote_port} `, pill(r.state, railKinds[r.state] ?? "bad")), small(`MTU ${r.mtu_bytes}`)],
        [line(el("strong", null, r.provider)), small(plain(r.reason))],
        line(pill(`${r.lanes_up} of ${r.lanes} up`, r.lanes_up === r.lanes ? "good" : r.lanes_up > 0 ? "warn" : "bad")),
        [line(bits(sent)), small(`${bytes(r.sent_bytes)} in all`)], [line(bits(received)), small(`${bytes(r.received_bytes)} in all`)],
      ] });
    });
  }
  fillTable("rails", rows, "No other node is listed under peers in this node's configuration.");
  drawFigures();
  drawAlarms();
}

async function drawDevices() {
  seen.devices = await ask("v1/devices");
  const port = (p) => [
    line(`port ${p.number} `, pill(p.state, p.state === "active" ? "good" : "bad"), ` ${p.rate_bits_per_second / 1e9} Gbit/s, ${p.link_layer}, MTU ${p.mtu_bytes}`),
    small(`${p.gid_type} ${p.address || p.gid}${p.netdev ? ` on ${p.netdev}` : ""}`), p.error ? el("div", { class: "bad-text" }, plain(p.error)) : undefined,
  ];
  fillTable("devices", seen.devices.devices.map((d) => ({ key: `${d.provider} ${d.name}`, cells: [
    [line(el("strong", null, d.name)), d.detail ? small(plain(d.detail)) : undefined],
    [line(d.provider), line(d.software ? pill("software", "bad") : pill("hardware", "good"))],
    [line(d.used ? pill("used", "good") : pill("not used", d.error ? "bad" : "")), small(plain(d.why)), d.error ? el("div", { class: "bad-text" }, plain(d.error)) : undefined],
    d.ports.length ? d.ports.map(port) : small("none in use"),
    [line(d.numa_node < 0 ? "none" : String(d.numa_node)), d.relaxed_ordering ? small("relaxed ordering") : undefined],
  ] })), `No device. ${plain(seen.devices.reason)}`);
  drawAlarms();
}

async function drawBuffers() {
  const { buffers } = await ask("v1/buffers");
  fillTable("buffers", buffers.map((b) => ({ key: b.name, cells: [
    [line(el("strong", null, b.name)), small(b.path), b.error ? el("div", { class: "bad-text" }, plain(b.error)) : undefined],
    line(bytes(b.bytes)),
    [line(`${bytes(b.page_bytes)} pages, ${b.numa_node < 0 ? "any NUMA node" : `NUMA node ${b.numa_node}`}`), small(plain(b.page_reason))],
    [line(b.owner), small(`made ${ago(b.created_at)}`)],
    b.leases.length ? b.leases.slice(0, 20).map((l) => line(`${bytes(l.length)} at ${l.offset} ${l.exclusive ? "written" : "read"} by ${l.holder}`)) : line("no"),
  ] })), "No buffers. `mover buffers create` makes one.");
}

async function drawRoots() {
  const { roots } = await ask("v1/roots");
  const nodes = (list) => line(list.length === 0 ? "nobody" : list.map((n) => (n === "*" ? "every node" : n)).join(", "));
  fillTable("roots", roots.map((r) => ({ key: r.name, cells: [
    line(el("strong", null, r.name)), [line(el("code", null, plain(r.path))), small(r.filesystem)],
    r.error ? el("div", { class: "bad-text" }, plain(r.error)) : [line(`${bytes(r.free_bytes)} of ${bytes(r.total_bytes)}`),
      r.quota_bytes || r.min_free_bytes ? small([r.quota_bytes && `quota ${bytes(r.quota_bytes)}`, r.min_free_bytes && `keeps ${bytes(r.min_free_bytes)} free`].filter(Boolean).join(", ")) : undefined],
    nodes(r.read), nodes(r.write),
  ] })), "No roots: jobs can name no directory of this node. Its configuration lists them under roots.");
}

async function drawPollers() {
  const { pollers } = await ask("v1/pollers");
  fillTable("pollers", pollers.map((p) => {
    const steps = perSecond(`poller ${p.id} steps`, p.steps);
    const empty = perSecond(`poller ${p.id} empty`, p.empty_steps);
    const cpu = perSecond(`poller ${p.id} cpu`, p.cpu_seconds);
    const busy = steps === null || empty === null ? "–" : steps === 0 ? "parked" : `${Math.round((100 * Math.max(0, steps - empty)) / steps)} % of rounds`;
    return { key: String(p.id), cells: [
      line(String(p.id)), [line(p.cpu === null ? "not pinned" : `CPU ${p.cpu}`), small(`NUMA node ${p.numa_node}, ${p.idle}`)], line(String(p.lanes)),
      line(busy), [line(cpu === null ? "–" : `${Math.round(100 * cpu)} %`), small(`${span(p.cpu_seconds)} in all`)], line(`${p.longest_gap_us} µs`),
    ] };
  }), "No pollers: the data path has not begun.");
}

// ---- Jobs ----

const kinds = { succeeded: "good", failed: "bad", expired: "bad", partial: "warn", paused: "warn", canceling: "warn", preparing: "busy", running: "busy", verifying: "busy", publishing: "busy" };
const pageSize = 25;
const list = { tokens: [""], next: "", active: true }; // the tokens of the pages up to the one that is shown

const ended = (job) => ["succeeded", "partial", "failed", "canceled", "expired"].includes(job.state);
const statePill = (job) => pill(job.pausing ? "pausing" : job.state, job.pausing ? "warn" : kinds[job.state]);

function progressOf(p, state) {
  const text = p.bytes_total === 0 && p.items_total === 0 ? "" : `${bytes(p.bytes_done)} of ${bytes(p.bytes_total)}, ${p.items_done} of ${p.items_total} ${p.items_total === 1 ? "item" : "items"}`;
  const share = p.bytes_total > 0 ? p.bytes_done / p.bytes_total : p.items_total > 0 ? p.items_done / p.items_total : state === "succeeded" ? 1 : 0;
  if (!text && state !== "preparing" && state !== "succeeded") return []; // nothing is known of it
  return [el("progress", { max: "1", value: share.toFixed(4), "aria-label": `${Math.floor(100 * share)} percent` }), text ? small(text) : undefined];
}

function rateOf(p) {
  if (p.rate_bytes_per_second <= 0) return [];
  return [line(bits(p.rate_bytes_per_second)), small(p.eta_seconds === null ? `${bytes(p.rate_bytes_per_second)}/s` : `${span(p.eta_seconds)} left`)];
}

function rowOf(job) {
  const way = `${place(job.spec.source)} → ${place(job.spec.destination)}`;
  const next = job.next_attempt_at ? small(`tries again ${since(job.next_attempt_at) < 0 ? `in ${span(-since(job.next_attempt_at))}` : "now"}`) : undefined;
  const elsewhere = job.forwarded ? small(`belongs to ${job.forwarded.node}${job.forwarded.accepted ? "" : ", which has not taken it yet"}`,
    job.forwarded.error ? `: ${plain(job.forwarded.error)}` : "") : undefined;
  return { key: job.id, cells: [
    [line(statePill(job)), job.attempts > 1 ? small(`attempt ${job.attempts}`) : undefined],
    [line(el("button", { type: "button", class: "link", "data-job": job.id }, way)), elsewhere, job.last_reason && job.state !== "succeeded" ? reasonLine(job.last_reason, !ended(job)) : undefined,
      job.result?.items_failed ? small(`${job.result.items_failed} of its items failed`) : undefined, next],
    progressOf(job.progress, job.state), rateOf(job.progress),
    [line(job.owner), job.spec.priority ? small(`priority ${job.spec.priority}`) : undefined],
    [el("div", { title: exact(job.created_at) }, ago(job.created_at)), job.finished_at && job.started_at ? small(`took ${span((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000)}`) : undefined],
  ] };
}

const inboundRow = (job) => ({ key: `${job.id} ${job.item} ${job.attempt}`, cells: [
  [line(pill(job.state, kinds[job.state])), job.attempt > 1 ? small(`attempt ${job.attempt}`) : undefined],
  [line(`${job.peer} → ${place(job.destination)}`), small(`job ${job.id}, item ${job.item}`), job.last_reason ? reasonLine(job.last_reason) : undefined],
  progressOf(job.progress, job.state), rateOf(job.progress), line(job.owner),
  [el("div", { title: exact(job.started_at) }, ago(job.started_at)), job.finished_at ? small(`took ${span((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000)}`) : undefined],
] });

async function drawJobs() {
  const role = $("job-role").value;
  const states = $("job-states").value;
  const token = list.tokens.at(-1);
  const query = new URLSearchParams({ limit: pageSize });
  for (const [name, value] of Object.entries({ role, state: states, page_token: token })) if (value) query.set(name, value);
  const page = await ask(`v1/jobs?${query}`);
  if (role !== $("job-role").value || states !== $("job-states").value || token !== list.tokens.at(-1)) return; // asked for another page meanwhile
  list.next = page.next_page_token ?? "";
  list.active = page.jobs.some((job) => !ended(job));
  fillTable("jobs", page.jobs.map(role ? inboundRow : rowOf),
    states || token ? "No such jobs." : role ? "Nothing is on its way here." : "No jobs yet. Submit one with mover cp, or POST /v1/jobs.");
  $("newer").disabled = list.tokens.length < 2;
  $("older").disabled = !list.next;
}

function turnPage(change) {
  change();
  soon(tasks.jobs, 0);
}

// ---- One job ----

const page = { id: "", version: 0, tree: false, events: [], after: 0, items: [], nextItems: "" }; // of the dialog; id "" is closed
const mostEvents = 500;

// What may be done with a job in its state; what the state does not allow is not shown.
function actionsOf(job) {
  const { caller } = session;
  if (caller.scope === "read" || (caller.scope !== "admin" && caller.owner !== job.owner)) return [];
  const actions = [];
  const held = job.state === "paused" || job.pausing;
  if (!ended(job) && job.state !== "canceling") actions.push(held ? ["resume", "Resume"] : ["pause", "Pause"]);
  if (["partial", "failed", "canceled", "expired"].includes(job.state)) actions.push(["retry", "Retry"]);
  if (job.state === "queued" && job.next_attempt_at) actions.push(["retry", "Try now"]);
  if (!ended(job) && job.state !== "canceling") actions.push(["cancel", "Cancel…"]);
  return actions;
}

function drawJob(job) {
  paint($("job-title"), `${place(job.spec.source)} → ${place(job.spec.destination)}`);
  paint($("job-actions"), statePill(job), actionsOf(job).map(([act, label]) => el("button", { type: "button", "data-act": act, class: act === "cancel" ? "danger" : undefined }, label)));
  paint($("job-progress"), progressOf(job.progress, job.state), rateOf(job.progress));
  const time = (t) => [exact(t), ` (${since(t) < 0 ? `in ${span(-since(t))}` : ago(t)})`];
  const result = job.result;
  const facts = [
    ["Job", el("code", null, job.id)], ["Owner", job.owner], ["Priority", String(job.spec.priority ?? 0)],
    ["Limit", job.spec.bandwidth_limit && rateText(job.spec.bandwidth_limit)], ["Labels", Object.entries(job.spec.labels ?? {}).map(([k, v]) => plain(`${k}=${v}`)).join(", ")],
    ["Reason", job.last_reason ? reasonLine(job.last_reason, !ended(job)) : ""], ["Attempts", `${job.attempts}${job.retries ? `, brought back ${job.retries} times` : ""}`],
    ["Tries again", job.next_attempt_at && time(job.next_attempt_at)], ["Submitted", [...time(job.created_at), job.origin ? ` at ${job.origin}` : ""]],
    ["Started", job.started_at && time(job.started_at)], ["Ended", job.finished_at && time(job.finished_at)], ["Deadline", job.deadline_at && time(job.deadline_at)],
    ["Belongs to", job.forwarded && `${job.forwarded.node}; ${job.forwarded.accepted ? "taken" : "not taken yet"}${job.forwarded.last_contact ? `, heard of ${ago(job.forwarded.last_contact)}` : ""}${job.forwarded.error ? `: ${plain(job.forwarded.error)}` : ""}`],
    ["Result", result && [`${bytes(result.bytes)} in ${result.seconds.toFixed(2)} s`, result.items && `${result.items} ${result.items === 1 ? "item" : "items"} published`, result.items_skipped && `${result.items_skipped} skipped`,
      result.items_failed && `${result.items_failed} failed`, result.skipped && "skipped: the destination exists", result.verified ? "verified" : "not verified", result.durable ? "durable" : "not durable",
      result.providers && `over ${result.providers.join(", ")}`, result.crc32c && `CRC32C ${result.crc32c}`].filter(Boolean).join(", ")],
  ];
  paint($("job-facts"), facts.filter(([, value]) => value).map(([name, value]) => fact(name, value)));
  paint($("job-spec"), plainJSON(job.spec));
}

// plainJSON keeps line ends, and nothing else that is invisible.
const plainJSON = (value) => JSON.stringify(value, null, 2).split("\n").map(plain).join("\n");

async function showJob() {
  const { id } = page;
  if (!id) return;
  try {
    const job = await ask(`v1/jobs/${encodeURIComponent(id)}`);
    if (id !== page.id) return;
    drawJob(job);
    page.tree = job.spec.recursive;
    alarm($("job-problem"), null);
    if (job.version === page.version && !job.forwarded) return;
    await moreEvents(id);
    if (id === page.id && page.version !== job.version) await firstItems();
    page.version = job.version;
  } catch (why) {
    if (id === page.id) alarm($("job-problem"), why);
  }
}

async function moreEvents(id) {
  for (;;) {
    const { events, next_after: next } = await ask(`v1/jobs/${encodeURIComponent(id)}/events?limit=${mostEvents}&after=${page.after}`);
    if (id !== page.id) return;
    page.events = page.events.concat(events).slice(-mostEvents);
    page.after = next;
    if (events.length < mostEvents) break;
  }
  fillTable("events", page.events.toReversed().map((e) => ({ key: String(e.seq), cells: [
    line(exact(e.at)), line(e.type), line(pill(e.state, kinds[e.state])), e.reason ? reasonLine(e.reason) : [],
  ] })), "No events are kept of this job.");
  if (page.events.length === mostEvents) note("events", `The newest ${mostEvents} are shown.`);
}

async function firstItems() {
  Object.assign(page, { items: [], nextItems: "" });
  await moreItems();
}

async function moreItems() {
  const { id, nextItems } = page;
  const state = $("item-state").value;
  const query = new URLSearchParams({ limit: 50 });
  for (const [name, value] of Object.entries({ state, page_token: nextItems })) if (value) query.set(name, value);
  try {
    const answer = await ask(`v1/jobs/${encodeURIComponent(id)}/items?${query}`);
    if (id !== page.id || state !== $("item-state").value || nextItems !== page.nextItems) return;
    page.items.push(...answer.items);
    page.nextItems = answer.next_page_token ?? "";
    fillTable("items", page.items.map((item, i) => ({ key: String(i), cells: [
      [line(pathOf(item) || "(the source itself)"), item.reason ? reasonLine(item.reason) : undefined], line(item.kind), line(pill(item.state, kinds[item.state])), line(bytes(item.bytes)), line(String(item.attempt)),
    ] })), page.tree ? (state === "failed" ? "No item has failed." : "No such items.") : "This job has one item; those of a tree are listed here.");
    $("items-more").hidden = !page.nextItems;
  } catch (why) {
    if (id === page.id) note("items", `${why.title}. ${why.detail}`, true);
  }
}

function openJob(id) {
  Object.assign(page, { id, version: 0, events: [], after: 0, items: [], nextItems: "" });
  for (const part of ["job-title", "job-actions", "job-progress", "job-facts", "job-spec"]) paint($(part), part === "job-title" ? "Job" : "");
  for (const table of ["items", "events"]) fillTable(table, [], "…");
  $("items-more").hidden = true;
  alarm($("job-problem"), null);
  if (!$("job").open) $("job").showModal();
  $("job-title").focus();
  soon(tasks.job, 0);
}

async function act(name) {
  const { id } = page;
  if (name === "cancel" && !confirm("Cancel this job? What it has published stays; the rest is given up.")) return;
  try {
    const job = await ask(`v1/jobs/${encodeURIComponent(id)}/${name}`, { method: "POST" });
    if (id === page.id) drawJob(job);
    $("said").textContent = `The job is ${job.state}.`;
  } catch (why) {
    if (id === page.id) alarm($("job-problem"), why);
    return; // the next look at the job would take the problem away
  }
  $("job-title").focus(); // the button may be gone
  soon(tasks.job, 300);
  soon(tasks.jobs, 300);
}

// ---- When what is asked ----

// A stream of events says when a job changed; progress and the node's figures make no events and are asked for.
const tasks = {
  version: { run: drawVersion, every: 5000 },
  jobs: { run: drawJobs, every: () => (live && !list.active ? 15000 : 2000), id: "jobs" },
  job: { run: showJob, every: 2000 },
  counts: { run: drawCounts, every: 5000 },
  peers: { run: drawPeers, every: 2000, id: "rails" },
  devices: { run: drawDevices, every: 10000, id: "devices" },
  buffers: { run: drawBuffers, every: 5000, id: "buffers" },
  roots: { run: drawRoots, every: 10000, id: "roots" },
  pollers: { run: drawPollers, every: 2000, id: "pollers" },
};
let live = false; // a stream of events is open
let silent = false; // the node did not answer last time

const soon = (task, ms) => { task.due = Math.min(task.due ?? Infinity, performance.now() + ms); task.again = task.busy; };

async function run(task) {
  Object.assign(task, { busy: true, again: false });
  try {
    await task.run();
  } catch (why) {
    if (!(why instanceof Refusal)) console.error(why);
    if (session && task.id && why.status !== 0) note(task.id, `${why.title ?? "A defect of this page"}. ${why.detail ?? why.message}`, true);
  }
  const every = typeof task.every === "function" ? task.every() : task.every;
  Object.assign(task, { busy: false, due: performance.now() + (task.again ? 0 : silent ? Math.max(every, 5000) : every) });
}

// reached says whether the node answers. While it does not, what was last seen stays, dimmed; when it does again,
// everything is asked for at once.
function reached(of, yes) {
  if (of !== session) return;
  const back = silent && yes;
  silent = !yes;
  if (back) for (const task of Object.values(tasks)) soon(task, 0);
  if (back) wakeStream();
  drawLive();
}

function drawLive() {
  for (const id of ["sight", "node"]) $(id).classList.toggle("stale", silent);
  paint($("live"), silent ? pill("The node does not answer. Trying again…", "bad") : live ? "live" : "asking every few seconds");
}

setInterval(() => {
  if (!session || document.hidden) return;
  for (const task of Object.values(tasks)) if (!task.busy && performance.now() >= (task.due ?? 0)) run(task);
}, 200);

const longestSilence = 40000; // milliseconds; the node says something every 15 s
const longestEvent = 1 << 20; // characters
let lastEvent = ""; // the id of the last event that came
let stream = null; // AbortController of the stream that is kept open
let wakeStream = () => {}; // ends the pause before it is opened again

// follow keeps a stream open while the page is looked at. EventSource cannot send the token, so this reads it itself.
async function follow() {
  stream?.abort();
  if (!session || document.hidden) return;
  const mine = (stream = new AbortController());
  const stop = AbortSignal.any([mine.signal, session.ended.signal]);
  for (let delay = 1000; !stop.aborted; delay = Math.min(2 * delay, 30000)) {
    const began = performance.now();
    try {
      await readStream(stop);
    } catch (why) {
      if (!(why instanceof Refusal) && !stop.aborted) console.warn(why);
      if (why.status === 401) soon(tasks.version, 0); // which signs out
    }
    if (stop.aborted) return;
    live = false;
    drawLive();
    if (performance.now() - began > 10000) delay = 1000;
    await new Promise((wake) => { wakeStream = wake; setTimeout(wake, delay); stop.addEventListener("abort", wake, { once: true }); });
  }
}

async function readStream(stop) {
  const quiet = new AbortController();
  let timer = 0;
  const heard = () => { clearTimeout(timer); timer = setTimeout(() => quiet.abort(), longestSilence); };
  heard();
  try {
    const headers = { Accept: "text/event-stream", ...(lastEvent && { "Last-Event-ID": lastEvent }) };
    const answer = await request(session, "v1/events?after=latest", { headers, signal: AbortSignal.any([stop, quiet.signal]) });
    live = true;
    drawLive();
    for (const task of [tasks.jobs, tasks.job]) soon(task, 0); // what came before the stream was open
    let rest = "";
    for (const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      if (rest.length > longestEvent) throw new Error("an event is too long");
      blocks.forEach(takeEvent);
    }
  } finally {
    clearTimeout(timer);
    quiet.abort(); // closes the connection also when what came made no sense
  }
}

// takeEvent notes which job changed. Many events make one question.
function takeEvent(block) {
  const fields = Object.fromEntries(block.split("\n").map((text) => text.split(/: ?(.*)/s, 2)));
  if (!fields.id || !fields.data) return; // a heartbeat
  lastEvent = fields.id;
  soon(tasks.jobs, 300);
  if (JSON.parse(fields.data).job === page.id) soon(tasks.job, 100);
}

// ---- Signing in and out ----

const kept = "mover-token"; // in sessionStorage, which ends with the tab

async function signIn(token) {
  alarm($("sign-in-problem"), null);
  if (!/^[!-~]+$/.test(token)) return leave({ title: "This is no token", detail: "A token has no spaces, and ASCII characters alone; check that it is whole." });
  const begun = { token, caller: null, ended: new AbortController() };
  try {
    const answer = await request(begun, "v1/caller", { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(longestAnswer) });
    begun.caller = await answer.json();
  } catch (why) {
    // A node that is being restarted is no reason to forget a token that was right.
    const away = !why.status;
    leave(why instanceof Refusal ? why : { title: "The node's answer broke off", detail: "This page tries again by itself." }, away);
    if (away) setTimeout(() => { if (!session && sessionStorage.getItem(kept) === token) signIn(token); }, 3000);
    return;
  }
  session?.ended.abort();
  session = begun;
  sessionStorage.setItem(kept, token);
  $("token").value = "";
  $("sign-in").hidden = true;
  $("sight").hidden = $("sign-out").hidden = false;
  for (const task of Object.values(tasks)) task.due = 0;
  follow();
}

// leave forgets the token and everything that was shown with it.
function leave(why, keep = false) {
  const wasIn = session !== null;
  session?.ended.abort();
  session = null;
  live = silent = false;
  lastEvent = "";
  if (!keep) sessionStorage.removeItem(kept);
  counters.clear();
  Object.assign(seen, { states: {}, devices: null, peers: [], ready: true, draining: false, rates: null });
  if ($("job").open) $("job").close();
  for (const id of ["jobs", "rails", "devices", "buffers", "roots", "pollers", "items", "events"]) fillTable(id, [], "");
  for (const id of ["node", "live", "figures", "alarms", "job-title", "job-actions", "job-progress", "job-facts", "job-spec"]) paint($(id), "");
  document.title = "mover";
  $("sight").hidden = $("sign-out").hidden = true;
  $("sign-in").hidden = false;
  alarm($("sign-in-problem"), why);
  if (wasIn || !why || document.activeElement === document.body) $("token").focus();
}

$("sign-in").addEventListener("submit", (e) => { e.preventDefault(); signIn($("token").value.trim()); });
$("sign-out").addEventListener("click", () => leave(null));
for (const id of ["job-states", "job-role"]) $(id).addEventListener("change", () => turnPage(() => { list.tokens = [""]; }));
$("newer").addEventListener("click", () => turnPage(() => { if (list.tokens.length > 1) list.tokens.pop(); }));
$("older").addEventListener("click", () => turnPage(() => { if (list.next) list.tokens.push(list.next); list.next = ""; }));
$("item-state").addEventListener("change", firstItems);
$("items-more").addEventListener("click", moreItems);
$("job-close").addEventListener("click", () => $("job").close());
$("job").addEventListener("close", () => { if (!$("job").open) page.id = ""; }); // it may be open again by now
document.addEventListener("click", (e) => {
  const button = e.target instanceof Element ? e.target.closest("button[data-job], button[data-act]") : null;
  if (button?.dataset.job) openJob(button.dataset.job);
  else if (button) act(button.dataset.act);
});
// A tab that nobody looks at costs the node nothing.
document.addEventListener("visibilitychange", () => {
  for (const task of Object.values(tasks)) task.due = 0;
  follow();
});

const before = sessionStorage.getItem(kept);
if (before) signIn(before);
else leave(null);
