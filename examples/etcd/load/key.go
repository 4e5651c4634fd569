package load

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Histories are judged key by key, and the time that takes grows faster than a history. So a writer takes a new key
// after so many acknowledged writes, and no more than so many reads of a key are remembered.
const (
	writesOfKey = 500
	readsOfKey  = 2000
)

// register is what one writer writes: one key after the other.
type register struct {
	prefix string
	lock   sync.Mutex // guards keys
	keys   []*key
}

func newRegister(prefix string) *register {
	r := &register{prefix: prefix}
	r.next()
	return r
}

// next returns a new key, which from now on is the register's latest.
func (r *register) next() *key {
	r.lock.Lock()
	defer r.lock.Unlock()
	k := &key{name: fmt.Sprintf("%s/%05d", r.prefix, len(r.keys))}
	r.keys = append(r.keys, k)
	return k
}

// pick returns the latest key, but for every tenth number: then it is any one. A write may get lost later.
func (r *register) pick(number int) *key {
	r.lock.Lock()
	defer r.lock.Unlock()
	if number%10 == 0 {
		return r.keys[number/10%len(r.keys)]
	}
	return r.keys[len(r.keys)-1]
}

// all returns the keys.
func (r *register) all() []*key {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.keys[:len(r.keys):len(r.keys)]
}

// key is one key. Its numbers only grow, in the order in which etcd applies the writes.
type key struct {
	name string
	lock sync.Mutex // guards what follows
	// floor is the highest number that was acknowledged or read.
	floor   int64
	history []operation
	reads   int // in history
}

// operation is one request, as its client has seen it.
type operation struct {
	client     int
	call, back time.Duration // since the load began
	write      bool
	outcome    outcome // of a write
	// number is what was written or read, or 0 if the key was not there. revision is that of the key afterwards.
	number, revision int64
	// expected is the revision on which a write depended; 0: there is no key.
	expected int64
}

// outcome is what became of a write.
type outcome int

const (
	applied outcome = iota
	refused         // the key had another revision than expected
	unknown         // no answer: it was applied, will be, or never is
)

// atLeast returns what a read that begins now has to return.
func (k *key) atLeast() int64 {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.floor
}

// raise is called with each number that was acknowledged or read.
func (k *key) raise(number int64) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.floor = max(k.floor, number)
}

// record adds an operation to the history.
func (k *key) record(o operation) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if !o.write {
		if k.reads == readsOfKey {
			return
		}
		k.reads++
	}
	k.history = append(k.history, o)
}

// operations returns the history. It must not grow any more.
func (k *key) operations() []operation {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.history
}

// compare compares what a read has returned with what was known when it began. Empty: it is right.
func (k *key) compare(known int64, found []*mvccpb.KeyValue) (number, revision int64, wrong string) {
	if len(found) > 0 {
		number, _ = strconv.ParseInt(string(found[0].Value), 10, 64)
		revision = found[0].ModRevision
	}
	if number < known {
		return number, revision, fmt.Sprintf("%s was read as %d, after %d had been acknowledged or read", k.name,
			number, known)
	}
	k.raise(number)
	return number, revision, ""
}
