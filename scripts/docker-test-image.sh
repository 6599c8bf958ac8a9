# Sourced by docker-test.sh: what the image itself promises.

# field TEMPLATE prints something of the image.
field() { docker_ image inspect --format "$1" "$image"; }

# is WHAT GOT WANT
is() { [ "$2" = "$3" ] || fail "$1 is \"$2\", not \"$3\""; }

is "the image's user" "$(field '{{.Config.User}}')" 9470:9470
is "the entry point" "$(field '{{json .Config.Entrypoint}} {{json .Config.Cmd}}')" \
	'["/usr/local/bin/mover"] ["run","--config","/etc/mover/config.yaml"]'
is "the volume" "$(field '{{json .Config.Volumes}}')" '{"/var/lib/mover":{}}'
is "the health check" "$(field '{{json .Config.Healthcheck.Test}}')" '["CMD","/usr/local/bin/mover","healthz","--ready"]'
is "the title" "$(field '{{index .Config.Labels "org.opencontainers.image.title"}}')" mover
is "the version label" "$(field '{{index .Config.Labels "org.opencontainers.image.version"}}')" "$version"

# once ARGUMENT... runs the image to its end, as it is meant to be run.
once() { docker_ run --rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges "$@"; }

is "the version" "$(once "$image" version | cut -d' ' -f1,2)" "mover $version"
is "the process's user" "$(once --entrypoint id "$image" -u)" 9470
is "the fallback of the image's configuration" \
	"$(once "$image" config print --config /etc/mover/config.yaml | sed -n 's/^ *fallback: //p')" forbid
is "what the image has of its own in /etc/mover and /var/lib/mover" \
	"$(once --entrypoint find "$image" /etc/mover /var/lib/mover -type f)" /etc/mover/config.yaml
# The check must be able to fail.
status=0
said=$(once "$image" healthz --ready 2>&1) || status=$?
is "the health check's exit code without a node" "$status" 1
[[ $said == *"http://127.0.0.1:9470/readyz"*"is \`mover run\` up?"* ]] || fail "the health check without a node says: $said"
