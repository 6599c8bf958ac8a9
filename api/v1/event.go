package v1

import "mover/job"

// EventList is a page of GET /v1/events and GET /v1/jobs/{id}/events.
type EventList struct {
	Events []job.Event `json:"events"` // oldest first; never null
	// NextAfter is what the next page is asked with as after: the last event's
	// seq, or what this page was asked with.
	NextAfter uint64 `json:"next_after"`
}

// ItemList is a page of GET /v1/jobs/{id}/items.
type ItemList struct {
	Items         []job.ItemRecord `json:"items"`                     // in the order in which they ended; never null
	NextPageToken string           `json:"next_page_token,omitempty"` // "" on the last page
}
