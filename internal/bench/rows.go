package main

// row is one workload.
type row struct {
	part     string // what it is asked for by: make bench BENCH=queue
	workload string // for people
	bench    string // the Go benchmark, whose sub-benchmarks are the sides
	home     string // the package that has it; empty: this one
	time     string // -test.benchtime
	cpu      string // -test.cpu; empty: all
	apart    bool   // each side has a process of its own
	measures []measure
}

// measure is a figure that both sides report, and what ours has to be. At least one of the two bounds is set.
type measure struct {
	name  string
	unit  string // as the benchmark reports it
	side  string // which of ours; empty: thermostat
	peer  string // which of the peers; empty: client-go
	ratio bound  // of ours to the peer's
	limit bound  // of ours alone
}

// bound is a figure that may not be passed; the zero bound is none.
type bound struct {
	kind  boundKind
	value float64
}

type boundKind int

const (
	none boundKind = iota
	most
	least
)

func atMost(v float64) bound  { return bound{most, v} }
func atLeast(v float64) bound { return bound{least, v} }

func (b bound) meets(v float64) bool {
	switch b.kind {
	case most:
		return v <= b.value
	case least:
		return v >= b.value
	}
	return true
}

const (
	clientGo          = "client-go"
	controllerRuntime = "controller-runtime"
)

// The targets are ours. They were set from measurements of the peers and of prototypes, before the code was written.
var rows = []row{
	{part: "queue", workload: "Add, Get, Forget, Done of 10k keys in turn", bench: "QueueOneKey", time: "1s", measures: []measure{
		{name: "time", unit: "sec/op", ratio: atMost(0.55)},
		{name: "allocations", unit: "allocs/op", limit: atMost(0)},
	}},
	{part: "queue", workload: "the same with priorities", bench: "QueuePriority", time: "1s", measures: []measure{
		{name: "time", unit: "sec/op", peer: controllerRuntime, ratio: atMost(0.15)},
		{name: "allocations", unit: "allocs/op", peer: controllerRuntime, limit: atMost(1)},
	}},
	{part: "queue", workload: "8 producers, 8 workers, 100k keys", bench: "QueueContended", time: "1s", measures: []measure{
		{name: "throughput", unit: "keys/s", ratio: atLeast(1.3)},
	}},
	{part: "queue", workload: "AddAfter(1 h and more) of 1M keys", bench: "QueueDelayed", time: "1x", measures: []measure{
		{name: "time", unit: "sec/key", ratio: atMost(0.6)},
		{name: "memory", unit: "B/key", ratio: atMost(0.6)},
	}},
	{part: "store", workload: "150k pods, 3 indexes", bench: "StoreBytes", time: "1x", measures: []measure{
		{name: "memory beside each object", unit: "B/object", ratio: atMost(0.5)},
	}},
	{part: "store", workload: "Get by key", bench: "StoreGet", time: "1s", measures: []measure{
		{name: "time", unit: "sec/op", ratio: atMost(0.65)},
		{name: "allocations", unit: "allocs/op", limit: atMost(0)},
	}},
	{part: "store", workload: "look up 30 pods by their owner's UID", bench: "StoreLookup", time: "1s", measures: []measure{
		{name: "time", unit: "sec/op", ratio: atMost(0.3)},
		{name: "bytes copied", unit: "B/op", limit: atMost(8 * 32)}, // 30 references, and the next size that there is
	}},
	{part: "store", workload: "update an object, its 3 index values unchanged", bench: "StoreUpdate", home: "../../informer", time: "1s", measures: []measure{
		{name: "time", unit: "sec/op", ratio: atMost(0.5)},
		{name: "allocations", unit: "allocs/op", limit: atMost(2)},
	}},
	{part: "store", workload: "visit all of 150k", bench: "StoreVisit", time: "1s", measures: []measure{
		{name: "time", unit: "sec/op", ratio: atMost(0.5)},
		{name: "bytes copied", unit: "B/op", limit: atMost(8 * 150_000 * 1.01)}, // a reference each, in whole pages
	}},
}
