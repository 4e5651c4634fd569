package processnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
)

// patient is the try at which a volume that cannot be made is reported, after about half a second: a claim that is new
// is bound at one of the first.
const patient = 6

// againAfter is how long an object that was deleted may still be there before it is deleted again: an API server that
// is killed may have promised and not kept it.
const againAfter = 2 * time.Second

// podWorker runs one pod on its node, from the binding to the end of the object, or until the node stops.
type podWorker struct {
	pool *Pool
	node *Node
	dir  string // of the pod's files
	// first is the pod as it was when the node learned of it. Its spec changes in nothing but images and deadlines.
	first      *corev1.Pod
	ports      []*network.Port // of the pod's address in the network; used by runContainers, and by run at its end
	init       []*container
	containers []*container

	told    chan struct{} // has room for one: pod or gone has changed
	changed chan struct{} // has room for one: the status has changed

	// running ends when the node stops, and killing before it when all containers must be dead, and stopping before
	// that when they must end.
	running, killing, stopping context.Context
	kill, stop                 context.CancelFunc

	// reporting is held during a status update, so that an old status never follows a new one.
	reporting sync.Mutex
	reported  []byte

	// Guarded by mu, which is never held during a request to the API server.
	mu         sync.Mutex
	pod        *corev1.Pod // as the watch delivered it last; not changed
	gone       bool
	ip         string          // at which others reach the pod
	listens    string          // the address of the processes: ip, or one behind the network
	phase      corev1.PodPhase // Succeeded, Failed, or empty as long as the pod has not ended
	reason     string
	message    string
	started    metav1.Time
	initDone   bool
	disks      map[string]string // the folders of claims by volume
	conditions map[corev1.PodConditionType]corev1.PodCondition
}

// newPodWorker takes a pod as it was when the node learned of it. The node's pool.mu is held.
func newPodWorker(ctx context.Context, n *Node, pod *corev1.Pod) *podWorker {
	w := &podWorker{
		pool: n.pool, node: n, dir: filepath.Join(n.pool.dir, "pods", string(pod.UID)), first: pod, running: ctx,
		told: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		pod: pod, started: metav1.Now(), disks: map[string]string{},
		conditions: map[corev1.PodConditionType]corev1.PodCondition{},
	}
	w.killing, w.kill = context.WithCancel(ctx)
	w.stopping, w.stop = context.WithCancel(w.killing)
	if pod.DeletionTimestamp != nil { // while the node was stopped
		w.stop()
	}
	if pod.Status.StartTime != nil {
		w.started = *pod.Status.StartTime
	}
	if ended := pod.Status.Phase; ended == corev1.PodSucceeded || ended == corev1.PodFailed {
		w.phase, w.reason, w.message, w.initDone = ended, pod.Status.Reason, pod.Status.Message, true
	}
	for _, c := range pod.Status.Conditions {
		w.conditions[c.Type] = c
	}
	for i := range pod.Spec.InitContainers {
		w.init = append(w.init, newContainer(w, pod.Spec.InitContainers[i].Name, true))
	}
	for i := range pod.Spec.Containers {
		w.containers = append(w.containers, newContainer(w, pod.Spec.Containers[i].Name, false))
	}
	return w
}

// all returns the init containers and the others.
func (w *podWorker) all() []*container { return slices.Concat(w.init, w.containers) }

// or returns what p points to, or else otherwise.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// tell hands over the present state of the pod; nil says that the object is gone.
func (w *podWorker) tell(pod *corev1.Pod) {
	w.mu.Lock()
	if pod == nil {
		w.gone = true
	} else {
		w.pod = pod
	}
	w.mu.Unlock()
	poke(w.told)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *podWorker) latest() (pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone
}

// run returns when the object is gone, or the node has stopped, and all containers have ended.
func (w *podWorker) run() {
	var group lifecycle.Group
	reporting, quiet := context.WithCancel(w.running)
	group.Go("status", func() { w.keepReporting(reporting) })
	ended := make(chan struct{})
	group.Go("containers", func() {
		defer close(ended)
		w.runContainers()
	})
	w.follow(ended)
	w.kill()
	<-ended
	wire{w}.closePorts()
	quiet()
	w.pool.complain(context.Background(), group.Wait(unlimited))

	p := w.pool
	p.mu.Lock()
	pod, gone := w.latest()
	delete(p.workers, pod.UID)
	if gone {
		p.addresses.release(pod)
	}
	p.mu.Unlock()
	if gone {
		p.complain(context.Background(), os.RemoveAll(w.dir))
	}
}

// follow ends the containers in time when the pod is deleted, and then removes the object. It returns when the object
// is gone or the node has stopped.
func (w *podWorker) follow(ended <-chan struct{}) {
	timer := time.NewTimer(unlimited)
	defer timer.Stop()
	overdue := time.NewTimer(w.left(w.first))
	defer overdue.Stop()
	late := false
	var end time.Time // of the grace period
	for {
		select {
		case <-w.running.Done():
			return
		case <-w.told:
		case <-overdue.C:
			if late = true; end.IsZero() {
				w.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
				w.stop()
				end = time.Now().Add(grace(w.first, nil))
				timer.Reset(time.Until(end))
			}
		case <-timer.C:
			w.kill()
		case <-ended:
			ended = nil
			overdue.Stop()
		}
		pod, gone := w.latest()
		switch {
		case gone && ended == nil:
			return
		case gone:
			w.kill()
		case pod.DeletionTimestamp != nil && ended == nil:
			w.pool.complain(w.running, w.pool.eventually(w.running, w.remove))
			timer.Reset(againAfter)
		case pod.DeletionTimestamp != nil:
			w.stop()
			left := time.Duration(or(pod.DeletionGracePeriodSeconds, 0)) * time.Second
			if end.IsZero() || time.Until(end) > left {
				end = time.Now().Add(left)
				timer.Reset(left)
			}
		case !late && ended != nil:
			overdue.Reset(w.left(pod))
			w.restartChanged(pod)
		}
	}
}

// left returns what remains of the pod's activeDeadlineSeconds.
func (w *podWorker) left(pod *corev1.Pod) time.Duration {
	if pod.Spec.ActiveDeadlineSeconds == nil {
		return unlimited
	}
	return time.Until(w.started.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second))
}

// grace is what a container has to end: the pod's grace period, or that of a probe.
func grace(pod *corev1.Pod, probe *corev1.Probe) time.Duration {
	seconds := or(pod.Spec.TerminationGracePeriodSeconds, 30)
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		seconds = *probe.TerminationGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

// remove reports the end of the pod, and then has the API server remove the object.
func (w *podWorker) remove(ctx context.Context) error {
	if err := w.report(ctx); err != nil {
		return err
	}
	pod, _ := w.latest()
	err := w.pool.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch is about to deliver that it is gone
	}
	return err
}

// restartChanged ends the containers whose image was changed in the pod. They start again with the new one.
func (w *podWorker) restartChanged(pod *corev1.Pod) {
	for _, c := range w.containers {
		c.restartChanged(pod)
	}
}

// runContainers returns when all containers have ended for good.
func (w *podWorker) runContainers() {
	pod, _ := w.latest()
	if w.phase != "" { // it ended before the node was stopped
		return
	}
	volumes := &mounter{podWorker: w, written: map[string]map[string]file{}, tokens: map[string]token{}}
	if !w.prepare(pod, volumes) {
		w.finish()
		return
	}
	var group lifecycle.Group
	group.Go("volumes", volumes.keepFresh)
	if w.initialize() {
		var containers lifecycle.Group
		for _, c := range w.containers {
			containers.Go("container "+c.name, func() { c.run(w.stopping) })
		}
		w.pool.complain(context.Background(), containers.Wait(unlimited))
	}
	w.finish()
	w.stop()
	w.pool.complain(context.Background(), group.Wait(unlimited))
}

// initialize runs the init containers, and reports whether all of them have succeeded.
func (w *podWorker) initialize() bool {
	for _, c := range w.init {
		c.run(w.stopping)
		if !c.succeeded() {
			return false
		}
	}
	w.mu.Lock()
	w.initDone = true
	w.mu.Unlock()
	poke(w.changed)
	return true
}

// prepare makes the address and the volumes of the pod, and tries until it can. It returns false when the pod must end
// before that.
func (w *podWorker) prepare(pod *corev1.Pod, volumes *mounter) bool {
	told := ""
	for try := 1; ; try++ {
		reason, err := "FailedCreatePodSandBox", wire{w}.takeAddress(pod)
		if err == nil {
			reason, err = "FailedValidation", unsupported(pod)
		}
		if err == nil {
			reason, err = "FailedMount", volumes.mount(w.stopping, pod)
		}
		if err == nil {
			return true
		}
		if err.Error() != told && (reason != "FailedMount" || try >= patient) {
			told = err.Error()
			w.event(corev1.EventTypeWarning, reason, told)
			for _, c := range w.all() {
				c.wait(waitingFor(reason, c.isInit || len(w.init) == 0), told)
			}
		}
		if !lifecycle.Sleep(w.stopping, lifecycle.Doubled(10*time.Millisecond, try, retryAfter)) {
			return false
		}
	}
}

// waitingFor is the reason with which a container waits.
func waitingFor(reason string, first bool) string {
	switch {
	case reason == "FailedValidation":
		return "CreateContainerConfigError"
	case first:
		return "ContainerCreating"
	default:
		return "PodInitializing"
	}
}

// fail ends the pod as Failed, whatever its containers end with.
func (w *podWorker) fail(reason, message string) {
	w.mu.Lock()
	w.reason, w.message = reason, message
	w.mu.Unlock()
	w.event(corev1.EventTypeNormal, reason, message)
}

// finish sets the last phase of a pod whose containers have all ended.
func (w *podWorker) finish() {
	w.mu.Lock()
	w.phase = corev1.PodSucceeded
	if w.reason != "" {
		w.phase = corev1.PodFailed
	}
	for _, c := range w.all() {
		if t := c.status.State.Terminated; t == nil || t.ExitCode != 0 {
			w.phase = corev1.PodFailed
		}
	}
	w.mu.Unlock()
	poke(w.changed)
}

// event writes an Event about the pod.
func (w *podWorker) event(kind, reason string, message ...any) {
	recorder{w.pool}.event(w.first, w.node.Name, kind, reason, fmt.Sprint(message...))
}
