package load

import (
	"fmt"
	"strconv"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// register is one key. Its numbers only grow, in the order in which etcd applies the writes.
type register struct {
	key   string
	lock  sync.Mutex // guards floor
	floor int64      // the highest number that was acknowledged or read
}

func newRegister(n int) *register { return &register{key: fmt.Sprintf("load/%02d", n)} }

// atLeast returns what a read that begins now has to return.
func (r *register) atLeast() int64 {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.floor
}

// raise is called with each number that was acknowledged or read.
func (r *register) raise(value int64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.floor = max(r.floor, value)
}

// judge compares what a read has returned with what was known when it began. Empty: it is right.
func (r *register) judge(known int64, found []*mvccpb.KeyValue) (value, revision int64, wrong string) {
	if len(found) > 0 {
		value, _ = strconv.ParseInt(string(found[0].Value), 10, 64)
		revision = found[0].ModRevision
	}
	if value < known {
		return value, revision, fmt.Sprintf("%s was read as %d, after %d had been acknowledged or read", r.key, value,
			known)
	}
	r.raise(value)
	return value, revision, ""
}
