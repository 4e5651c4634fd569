package load

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// watcher follows all keys by a watch. When the watch breaks, it goes on at another member, after the last revision
// that it has.
type watcher struct {
	load *Load
	lock sync.Mutex // guards seen
	seen seen
}

// seen is what a watch has brought.
type seen struct {
	// since is the revision after which the watch began, and upTo the one that it has come to.
	since, upTo int64
	events      []event
	gaps        []gap
}

// event is a write, as the watch has it.
type event struct {
	revision, number int64
	key              string
}

// gap is a row of revisions, the last one included, that etcd had compacted before the watch could have them.
type gap struct{ first, last int64 }

func (s *seen) compacted() (n int64) {
	for _, g := range s.gaps {
		n += g.last - g.first + 1
	}
	return n
}

// lost reports whether a revision is in a gap.
func (s *seen) lost(revision int64) bool {
	for _, g := range s.gaps {
		if g.first <= revision && revision <= g.last {
			return true
		}
	}
	return false
}

func (w *watcher) result() seen {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.seen
}

// silence is how long a watch may bring nothing. The clients write all the time; but a member may be gone for good, and
// etcd's client would wait for it without an end.
const silence = 3 * time.Second

// repeat watches until ctx ends.
func (w *watcher) repeat(ctx context.Context) {
	for turn := 0; ctx.Err() == nil; turn++ {
		if all := w.load.o.Endpoints(); len(all) > 0 {
			w.follow(ctx, all[turn%len(all)])
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// follow watches at one member until the watch breaks.
func (w *watcher) follow(ctx context.Context, url string) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: w.load.o.TLS(), Logger: zap.NewNop(),
		DialKeepAliveTime: patience, DialKeepAliveTimeout: patience})
	if err != nil {
		return
	}
	defer etcd.Close()
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	if upTo := w.result().upTo; upTo > 0 {
		options = append(options, clientv3.WithRev(upTo+1))
	}
	watchdog := time.AfterFunc(silence, cancel) // Watch itself waits until a member has opened the watch
	defer watchdog.Stop()
	for answer := range etcd.Watch(ctx, w.load.prefix+"/", options...) {
		if !w.take(answer) {
			return
		}
		watchdog.Reset(silence)
	}
}

// take remembers what has come. It reports whether the watch goes on.
func (w *watcher) take(answer clientv3.WatchResponse) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	s := &w.seen
	if answer.CompactRevision > s.upTo+1 {
		s.gaps = append(s.gaps, gap{s.upTo + 1, answer.CompactRevision - 1})
		s.upTo = answer.CompactRevision - 1
	}
	if answer.Err() != nil {
		return false
	}
	if answer.Created && s.upTo == 0 {
		s.since, s.upTo = answer.Header.Revision, answer.Header.Revision
	}
	for _, e := range answer.Events {
		number, _ := strconv.ParseInt(string(e.Kv.Value), 10, 64)
		s.events = append(s.events, event{e.Kv.ModRevision, number, string(e.Kv.Key)})
		s.upTo = max(s.upTo, e.Kv.ModRevision)
	}
	return true
}

// await waits until the watch has a revision, but not for long.
func (w *watcher) await(revision int64) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && w.result().upTo < revision; {
		time.Sleep(20 * time.Millisecond)
	}
}

// judgeEvents compares the events of a watch with the writes of the keys. All of one revision are one write here.
func judgeEvents(s seen, keys []*key) (wrong []string) {
	bad := func(format string, args ...any) {
		if len(wrong) < 20 {
			wrong = append(wrong, "the watch: "+fmt.Sprintf(format, args...))
		}
	}
	if s.since == 0 {
		bad("it never began")
		return wrong
	}
	type write struct {
		key    string
		number int64
	}
	byRevision, last := map[int64]write{}, s.since
	for _, e := range s.events {
		if e.revision <= last {
			bad("revision %d came after %d", e.revision, last)
		}
		last = max(last, e.revision)
		byRevision[e.revision] = write{e.key, e.number}
	}
	possible := map[write]bool{} // that it was applied
	for _, k := range keys {
		for _, o := range k.operations() {
			if !o.write || o.outcome == refused {
				continue
			}
			this := write{k.name, o.number}
			possible[this] = true
			if o.outcome == unknown || o.revision <= s.since || s.lost(o.revision) {
				continue
			}
			if got, ok := byRevision[o.revision]; !ok {
				bad("revision %d, %s=%d, is missing", o.revision, this.key, this.number)
			} else if got != this {
				bad("revision %d is %s=%d, and was %s=%d", o.revision, got.key, got.number, this.key, this.number)
			}
		}
	}
	first := map[write]int64{}
	for _, e := range s.events {
		this := write{e.key, e.number}
		if !possible[this] {
			bad("revision %d is %s=%d, which was not written", e.revision, e.key, e.number)
		}
		if before, twice := first[this]; twice {
			bad("%s=%d was written once, and is revision %d and %d", e.key, e.number, before, e.revision)
		}
		first[this] = e.revision
	}
	return wrong
}
