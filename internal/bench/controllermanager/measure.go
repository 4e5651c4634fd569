package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// informers are all that the process has made.
type informers struct {
	began time.Time
	make  func(cache.ListerWatcher, k8sruntime.Object, cache.SharedIndexInformerOptions) cache.SharedIndexInformer

	mu   sync.Mutex
	made []*informer // guarded by mu
}

type informer struct {
	cache.SharedIndexInformer
	name   string    // the type of its objects
	synced time.Time // zero: not yet; guarded by informers.mu
}

func (i *informers) new(lw cache.ListerWatcher, example k8sruntime.Object,
	options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
	made := &informer{SharedIndexInformer: i.make(lw, example, options), name: fmt.Sprintf("%T", example)}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made = append(i.made, made)
	go func() {
		<-made.HasSyncedChecker().Done()
		i.mu.Lock()
		defer i.mu.Unlock()
		made.synced = time.Now()
	}()
	return made.SharedIndexInformer
}

// report is what a run took.
type report struct {
	CPU       float64        // seconds
	RSS, Peak float64        // bytes
	Heap      float64        // bytes, after a garbage collection
	Synced    float64        // seconds, until the last cache was complete
	Objects   map[string]int // in the caches, by their type
	Unsynced  []string       // informers that nobody has run, or that have not synced in time, by the same
}

func measure(i *informers) (r report, err error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return r, err
	}
	r.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
	if r.RSS, r.Peak, err = memory(); err != nil {
		return r, err
	}
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	r.Heap = float64(heap.HeapAlloc)
	i.mu.Lock()
	defer i.mu.Unlock()
	r.Objects = map[string]int{}
	for _, made := range i.made {
		r.Objects[made.name] += len(made.GetStore().ListKeys())
		if made.synced.IsZero() {
			r.Unsynced = append(r.Unsynced, made.name)
		} else {
			r.Synced = max(r.Synced, made.synced.Sub(i.began).Seconds())
		}
	}
	slices.Sort(r.Unsynced)
	return r, nil
}

// memory returns what the process has in memory now, and what it has had at most.
func memory() (now, peak float64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes float64
		switch {
		case strings.HasPrefix(line, "VmRSS:"):
			_, err = fmt.Sscanf(line, "VmRSS: %f kB", &kilobytes)
			now = kilobytes * 1024
		case strings.HasPrefix(line, "VmHWM:"):
			_, err = fmt.Sscanf(line, "VmHWM: %f kB", &kilobytes)
			peak = kilobytes * 1024
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read %q: %w", line, err)
		}
	}
	return now, peak, nil
}
