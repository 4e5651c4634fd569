package reconciletest

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// drawn is one of the things that all Services of a server share, and that each of them has for itself: an address, or
// a port of the nodes.
type drawn struct {
	address netip.Addr
	port    int32
}

// servicePool is where Services get them from. What is stored is taken.
type servicePool struct {
	mu sync.Mutex
	// held is taken, too: by writes that are under way. Guarded by mu.
	held map[drawn]bool
	// addresses and ports are how many were drawn, from where the next one is looked for: what one Service has given
	// back another one does not get at once. Guarded by mu.
	addresses, ports int64
	// drawn are those that no client has chosen. Guarded by mu.
	drawn map[drawn]bool
}

// hasDrawn reports whether something was drawn, and not chosen by a client since.
func (p *servicePool) hasDrawn(it drawn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn[it]
}

// drewLocked notes that something was drawn.
func (p *servicePool) drewLocked(it drawn) {
	if p.drawn == nil {
		p.drawn = map[drawn]bool{}
	}
	p.drawn[it] = true
}

// draw is what one write takes out of the pool, and gives back when it is over: then it is stored, or nobody has it.
// It belongs to the goroutine of the write.
type draw struct {
	server  *Server
	service *corev1.Service
	was     *corev1.ServiceSpec // nil: it is new
	dry     bool                // a dry run
	free    bool                // a fork: the cluster knows whether what a client chooses can be had
	own     []drawn
	dryPort int32 // the last one that a dry run was shown; zero: none
}

var (
	errTaken = errors.New("it is taken")
	errRange = errors.New("it is not in the range")
)

// take takes what a client has chosen.
func (d *draw) take(it drawn) error {
	pool := &d.server.services
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if d.firstLocked(slices.Values([]drawn{it}), &it) {
		delete(pool.drawn, it)
	} else if !d.free {
		return errTaken
	}
	return nil
}

// firstLocked takes the first one that nobody has, and reports whether there is one. It needs the lock of the pool.
func (d *draw) firstLocked(candidates iter.Seq[drawn], found *drawn) bool {
	pool, taken := &d.server.services, takenIn(d.server)
	for it := range candidates {
		if taken[it] || pool.held[it] {
			continue
		}
		if pool.held == nil {
			pool.held = map[drawn]bool{}
		}
		pool.held[it] = true
		d.own = append(d.own, it)
		*found = it
		return true
	}
	return false
}

// release gives back what was taken.
func (d *draw) release() {
	pool := &d.server.services
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for _, it := range d.own {
		delete(pool.held, it)
	}
}

// takenIn is what the stored Services have.
func takenIn(s *Server) map[drawn]bool {
	all := map[drawn]bool{{address: firstAddress}: true} // the Service of the server itself has it
	for _, o := range s.store.list(corev1.Resource("services"), math.MaxInt64) {
		spec := o.(*corev1.Service).Spec
		for _, ip := range spec.ClusterIPs {
			if address, err := netip.ParseAddr(ip); err == nil {
				all[drawn{address: address}] = true
			}
		}
		if !isOnNodes(spec) {
			continue
		}
		for _, p := range spec.Ports {
			all[drawn{port: p.NodePort}] = true
		}
		if isChecked(spec) {
			all[drawn{port: spec.HealthCheckNodePort}] = true
		}
	}
	return all
}

// around counts up from the least number and so many, beginning again after the last one.
func around(least, most, from int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		size := most - least + 1
		for i := range size {
			if !yield(least + (from+i)%size) {
				return
			}
		}
	}
}

// invalid is the error of what a client has chosen and cannot have.
func (d *draw) invalid(errs ...*field.Error) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), d.service.Name, errs)
}

// full is the error when all have been taken.
func full(what string) error {
	return apierrors.NewInternalError(fmt.Errorf("failed to allocate %s: range is full", what))
}
