// Package ring has the bounded, lock-free queues between pollers and workers, and the parking protocol by which a
// consumer may sleep without ever missing an entry.
//
//   - [NewSPSC]: one producer, one consumer, split into a [Tx] and an [Rx] half; entries are staged, then published in
//     one store.
//   - [NewMPMC]: many producers, many consumers: commands to a poller, work for workers, completions from them.
//   - [Parker]: one sleeping consumer and any number of producers. [Pool]: several sleeping consumers of one MPMC.
//     [Bell]: a sleeping consumer that is an ordinary goroutine, not a thread.
//
// The package knows nothing of verbs, sessions or jobs. It starts no goroutine. Nothing allocates after construction,
// every queue has a fixed capacity, and a full or empty queue is an answer (false), never a wait. The only calls that
// block are [Parker.Park] and [Bell.Wait], with a deadline, and, for the time of one eventfd write, the lock of
// [Parker.Close]. A pure state machine may therefore use the rings and call the Wake methods; parking belongs to the
// loop around it.
//
// The consumer's loop:
//
//	for {
//		if v, ok := commands.TryPop(); ok {
//			handle(v)
//			continue
//		}
//		parker.Prepare()                        // from here on producers ring the eventfd
//		if v, ok := commands.TryPop(); ok {     // what was published before they could see that
//			parker.Cancel()
//			handle(v)
//			continue
//		}
//		_, err := parker.Park(nil, untilDeadline)
//		...
//	}
//
// and the producer's side:
//
//	if commands.TryPush(v) {                        // publish first
//		parker.Wake()                           // then look whether the consumer sleeps
//	}
//
// It works because both sides store, then load what the other one stores (Dekker's pattern): the consumer stores
// "parked" and then loads the rings, the producer stores the entry and then loads "parked". Go's sync/atomic
// operations are sequentially consistent (https://go.dev/ref/mem#atomic), so at least one of the two sees the other's
// store. Weaker stores would break it, as the model check in the tests shows.
package ring

// padBytes keeps words written by different threads on different cache lines. 128, not 64: the adjacent-line
// prefetcher of x86 moves pairs of lines, and several arm64 cores have 128-byte lines.
const padBytes = 128

const (
	minCapacity = 2
	// maxCapacity bounds the memory of a ring and keeps every count in an int on all platforms.
	maxCapacity = 1 << 20
)

func checkCapacity(capacity int) {
	if capacity < minCapacity || capacity > maxCapacity || capacity&(capacity-1) != 0 {
		panic("ring: capacity must be a power of two from 2 to 1048576")
	}
}
