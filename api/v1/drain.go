package v1

// DrainRequest is the body of POST /v1/drain; no body is the zero value.
type DrainRequest struct {
	Undo bool `json:"undo,omitempty"` // take jobs again
}

// Drain is the answer to POST /v1/drain. Repeating the request tells how far
// it is: a drained node has 0 running.
type Drain struct {
	Draining  bool `json:"draining"`  // no new jobs; GET /readyz answers 503
	Queued    int  `json:"queued"`    // jobs that wait; they stay for the next start
	Running   int  `json:"running"`   // attempts under way
	Receiving int  `json:"receiving"` // items that other nodes are bringing
}
