package verbs

import "fmt"

// EventType is the type of an asynchronous event (ibv_get_async_event(3)).
type EventType uint8

// The events, with the values of <infiniband/verbs.h>.
const (
	EventCQErr       EventType = 0
	EventQPFatal     EventType = 1
	EventQPReqErr    EventType = 2
	EventQPAccessErr EventType = 3
	EventCommEst     EventType = 4
	EventSQDrained   EventType = 5
	EventPathMig     EventType = 6
	EventPathMigErr  EventType = 7
	EventDeviceFatal EventType = 8
	EventPortActive  EventType = 9
	EventPortErr     EventType = 10
	EventLIDChange   EventType = 11
	EventPKeyChange  EventType = 12
	EventSMChange    EventType = 13
	EventQPLastWQE   EventType = 16
	EventClientRereg EventType = 17
	EventGIDChange   EventType = 18
)

var eventNames = map[EventType]string{
	EventCQErr: "CQ_ERR", EventQPFatal: "QP_FATAL", EventQPReqErr: "QP_REQ_ERR", EventQPAccessErr: "QP_ACCESS_ERR",
	EventCommEst: "COMM_EST", EventSQDrained: "SQ_DRAINED", EventPathMig: "PATH_MIG", EventPathMigErr: "PATH_MIG_ERR",
	EventDeviceFatal: "DEVICE_FATAL", EventPortActive: "PORT_ACTIVE", EventPortErr: "PORT_ERR",
	EventLIDChange: "LID_CHANGE", EventPKeyChange: "PKEY_CHANGE", EventSMChange: "SM_CHANGE",
	EventQPLastWQE: "QP_LAST_WQE_REACHED", EventClientRereg: "CLIENT_REREGISTER", EventGIDChange: "GID_CHANGE",
}

func (t EventType) String() string {
	if s, ok := eventNames[t]; ok {
		return s
	}
	return fmt.Sprintf("EventType(%d)", uint8(t))
}

// AsyncEvent is one asynchronous event; QPN, CQ or Port is set as its type
// demands.
type AsyncEvent struct {
	Type EventType
	QPN  uint32
	CQ   CQ
	Port uint8
}
