package clientgo

import (
	"context"
	"errors"
	"fmt"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
)

// registration is a handler that has been added to a sharedInformer.
type registration struct {
	informer *sharedInformer
	name     string
	core     *informer.Registration
}

func (r *registration) HasSynced() bool {
	select {
	case <-r.core.Synced():
		return true
	default:
		return false
	}
}

// ShutdownChan is closed when the handler will not be called again. It is what cache.ShutDownEventHandler waits for.
func (r *registration) ShutdownChan() <-chan struct{} { return r.core.Done() }

func (s *sharedInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

func (s *sharedInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler,
	period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &period})
}

func (s *sharedInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler,
	opts cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	r, err := s.addHandler(h, opts)
	if err != nil {
		return nil, err // and not a registration that is nil and does not look it
	}
	return r, nil
}

func (s *sharedInformer) addHandler(h cache.ResourceEventHandler, opts cache.HandlerOptions) (*registration, error) {
	log := klog.Background()
	if opts.Logger != nil {
		log = *opts.Logger
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, s.stoppedBefore(fmt.Sprintf("the handler %T", h))
	}
	period := s.resyncPeriod(log, opts.ResyncPeriod)
	r := &registration{informer: s, name: fmt.Sprintf("SharedIndexInformer %s + event handler %T", s.description, h)}
	var err error
	r.core, err = s.core.AddHandler(s.call(log, h, period > 0), informer.HandlerOptions{
		Name: fmt.Sprintf("%T", h), Every: true, CrashOnPanic: true, Resync: period,
	})
	if errors.Is(err, informer.ErrStopped) { // its end has begun
		err = s.stoppedBefore(fmt.Sprintf("the handler %T", h))
	}
	return r, err
}

const minResyncPeriod = time.Second

// resyncPeriod returns how often a handler is reminded of every object: as often as it wishes, with the informer's
// period for its default, but not more often than the informer allows once it runs. One whose own period is zero never
// does. mu is held.
func (s *sharedInformer) resyncPeriod(log klog.Logger, wish *time.Duration) time.Duration {
	period := s.period
	if wish != nil {
		period = *wish
	}
	switch {
	case period <= 0:
		return 0
	case s.checkPeriod == 0:
		log.Info("Warning: a handler asks for resyncs of an informer that makes none", "informer", s.description,
			"period", period)
		return 0
	case period < minResyncPeriod:
		log.Info("Warning: a resync period is raised to the minimum", "informer", s.description, "period", period,
			"minimum", minResyncPeriod)
		period = minResyncPeriod
	}
	switch {
	case period >= s.checkPeriod:
	case s.started:
		log.Info("Warning: a resync period is raised to that of the running informer", "informer", s.description,
			"period", period, "minimum", s.checkPeriod)
		period = s.checkPeriod
	default:
		s.checkPeriod = period
	}
	return period
}

// call makes a handler of ours of one of client-go's.
func (s *sharedInformer) call(log klog.Logger, h cache.ResourceEventHandler, resyncs bool) informer.Handler[any] {
	return func(e informer.Event[any]) {
		defer utilruntime.HandleCrashWithLogger(log)
		switch {
		case e.Type == informer.Added:
			h.OnAdd(s.store.packs.object(e.New), e.Initial)
		case e.Type == informer.Updated && (!e.Resync || resyncs || s.checkPeriod == 0):
			h.OnUpdate(s.store.packs.object(e.Old), s.store.packs.object(e.New))
		case e.FinalStateUnknown:
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: s.keyOf(e.Key, e.Old), Obj: s.store.packs.object(e.Old)})
		case e.Type == informer.Deleted:
			h.OnDelete(s.store.packs.object(e.Old))
		}
	}
}

func (s *sharedInformer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	switch {
	case !ok:
		return fmt.Errorf("a %T is no registration of this informer", handle)
	case r.informer != s:
		return nil
	}
	dontWait, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.core.Remove(dontWait) // its error is that of the context, if the handler has not returned yet
	return nil
}
