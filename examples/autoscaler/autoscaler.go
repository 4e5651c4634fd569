package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
)

// autoscaler looks at each HPA at a fixed interval, and sets the number of replicas of its target.
type autoscaler struct {
	settings
	events   *events.Recorder
	clients  clients
	targets  *targets
	meter    *meter
	notebook *notebook

	hpas        *informer.SharedIndexInformer[*autoscalingv2.HorizontalPodAutoscaler]
	pods        *informer.SharedIndexInformer[podFacts]
	podsByLabel *informer.Index[podKey, podFacts]
}

// clients are those of the resources that it follows.
type clients struct {
	hpas *informer.Resource[*autoscalingv2.HorizontalPodAutoscaler]
	pods *informer.Resource[*corev1.Pod]
}

func newClients(cfg *rest.Config) (c clients, err error) {
	var errs [2]error
	c.hpas, errs[0] = informer.NewResource[*autoscalingv2.HorizontalPodAutoscaler](cfg,
		autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"), informer.ResourceOptions{})
	c.pods, errs[1] = informer.NewResource[*corev1.Pod](cfg, corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	return c, errors.Join(errs[:]...)
}

// newController makes the reconciler with its caches, and the controller that maps their changes to keys.
func newController(cfg *rest.Config, events *events.Recorder, namespace string, set settings,
	options reconcile.Options) (*autoscaler, *reconcile.Controller, error) {
	if err := set.validate(); err != nil {
		return nil, nil, err
	}
	clients, err := newClients(cfg)
	if err != nil {
		return nil, nil, err
	}
	discovered, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	directory := newDirectory(discovered)
	r := &autoscaler{settings: set, events: events, clients: clients, notebook: newNotebook(),
		targets: &targets{cfg: cfg, directory: directory,
			clients: map[schema.GroupVersionResource]*informer.Subresource[*autoscalingv1.Scale]{}},
		meter: &meter{client: discovered.RESTClient(), directory: directory, timeout: 10 * time.Second},
	}
	var errs [4]error
	r.hpas, errs[0] = informer.New(clients.hpas.In(namespace),
		informer.Options[*autoscalingv2.HorizontalPodAutoscaler]{})
	r.pods, errs[1] = informer.Project(clients.pods.In(namespace), factsOf, informer.Options[*corev1.Pod]{})
	r.podsByLabel, errs[2] = informer.AddIndex(r.pods, podKeysOf)
	var c *reconcile.Controller
	c, errs[3] = reconcile.NewController("autoscaler", r, options)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, err
	}
	reconcile.For(c, r.hpas, specChanged) // no other change calls for a look: the next one comes by itself
	reconcile.DependsOn(c, r.pods)
	return r, c, nil
}

// specChanged compares specs and not generations, which HPAs have only since Kubernetes 1.37.
func specChanged(old, new *autoscalingv2.HorizontalPodAutoscaler) bool {
	return !apiequality.Semantic.DeepEqual(old.Spec, new.Spec)
}

// Reconcile is one look at an HPA: observe, decide, act, report. What RequeueAfter says is the clock: the loop has no
// other.
func (r *autoscaler) Reconcile(ctx context.Context, key informer.Key) (reconcile.Result, error) {
	hpa, ok := r.hpas.Get(key)
	if !ok {
		r.notebook.forget(key)
		return reconcile.Result{}, nil
	}
	now := time.Now() // one clock reading for all decisions of this look
	entry, due := r.notebook.of(hpa, r.interval, now)
	var err error
	if due {
		err = r.look(ctx, hpa, entry, now)
	}
	return reconcile.Result{RequeueAfter: entry.next(r.interval, time.Now())}, err // an error is no reason to hurry
}

func (r *autoscaler) look(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, entry *entry,
	now time.Time) error {
	// Observe: the size of the target, its pods, the metrics.
	target, err := r.targets.get(ctx, hpa)
	if err != nil {
		return r.reportNoScale(ctx, hpa, err, now)
	}
	s := &situation{settings: r.settings, hpa: hpa, scale: target.scale, now: now}
	if s.needsMetrics() {
		r.observe(ctx, s)
	}

	// Decide, without any request.
	d := decide(s, entry.memory)
	entry.memory = d.memory

	// Act: resize the target.
	resized := false
	failure := d.failed
	if d.resize {
		if err := target.resize(ctx, d.replicas); err != nil {
			failure = errors.Join(failure, fmt.Errorf("failed to rescale: %w", err))
			d.able(false, "FailedUpdateScale", "the HPA controller was unable to update the target scale: %v", err)
			d.tell(corev1.EventTypeWarning, "FailedRescale", "New size: %d; reason: %s; error: %v", d.replicas,
				d.reason, err)
		} else {
			resized = true
			s.noteResize(&d)
			entry.memory = d.memory
		}
	}

	// Report: Events and the status, also after a failure.
	return errors.Join(failure, r.report(ctx, hpa, d.events, d.statusOf(hpa, s.wanted(), resized)))
}

// observe reads what a decision by metrics needs.
func (r *autoscaler) observe(ctx context.Context, s *situation) {
	selector, trouble := r.findPods(s)
	s.trouble = trouble
	if trouble != nil {
		return
	}
	for i := range s.hpa.Spec.Metrics {
		s.readings = append(s.readings, r.meter.read(ctx, s.hpa.Namespace, &s.hpa.Spec.Metrics[i], selector))
	}
}
