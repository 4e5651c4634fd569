package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// container runs one container of a pod, one process after the other. One goroutine calls run.
type container struct {
	pod    *podWorker
	name   string
	isInit bool
	ending chan ending // takes requests to end the process, and has room for one
	runs   int32       // processes that were started; written by the goroutine of run

	// Guarded by pod.mu.
	status  corev1.ContainerStatus
	process *cluster.Process // while it runs
	logs    [2]string        // the log files of the latest process, and of the one before
}

// ending is why a process is ended while its pod goes on.
type ending struct {
	why   string
	grace time.Duration
	again bool // start the container again, whatever its restart policy
}

// newContainer continues with the status that a container had before its node was stopped.
func newContainer(w *podWorker, name string, isInit bool) *container {
	c := &container{pod: w, name: name, isInit: isInit, ending: make(chan ending, 1)}
	known := slices.Concat(w.first.Status.InitContainerStatuses, w.first.Status.ContainerStatuses)
	i := slices.IndexFunc(known, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i >= 0 {
		c.status = *known[i].DeepCopy()
		if c.status.ContainerID != "" {
			c.runs = c.status.RestartCount + 1
		}
	}
	c.status.Name, c.status.Image, c.status.Ready, c.status.Started = name, c.spec().Image, false, new(false)
	if running := c.status.State.Running; running != nil {
		c.status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "Unknown", Message: "the node was stopped", StartedAt: running.StartedAt,
			ContainerID: c.status.ContainerID,
		}}
	}
	if c.status.State == (corev1.ContainerState{}) {
		reason := waitingFor("", isInit || len(w.first.Spec.InitContainers) == 0)
		c.status.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
	return c
}

// spec returns the container as it is in the pod now.
func (c *container) spec() corev1.Container {
	pod, _ := c.pod.latest()
	for _, spec := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if spec.Name == c.name {
			return spec
		}
	}
	return corev1.Container{} // not reached: no container can be added or removed
}

// run starts the container, and again as the pod's restart policy says, until it has ended for good or stop ends.
func (c *container) run(stop context.Context) {
	again := true
	if ended := c.terminated(); ended != nil { // before its node was stopped; an init container runs once more then
		again = c.isInit || c.restarts(ended.ExitCode)
	}
	base := c.pod.pool.o.RestartBackOff
	for failures := 0; again && stop.Err() == nil; {
		process, err := c.start(stop)
		if err != nil {
			c.startFailed(err)
			lifecycle.Sleep(stop, retryStart(err, base))
			continue
		}
		began := time.Now()
		order := c.attend(stop, process)
		code := c.ended(process)
		if again = order.again || c.restarts(code); !again || stop.Err() != nil {
			return
		}
		if time.Since(began) > 2*30*base || order.again {
			failures = 0
		}
		if failures++; failures > 1 { // the first restart has no delay
			delay := lifecycle.Doubled(base, failures-2, 30*base)
			message := fmt.Sprintf("back-off %s restarting failed container=%s", delay, c.name)
			c.wait("CrashLoopBackOff", message)
			c.pod.event(corev1.EventTypeWarning, "BackOff", message)
			lifecycle.Sleep(stop, delay)
		}
	}
}

func (c *container) restarts(code int32) bool {
	switch c.pod.first.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return code != 0 || !c.isInit
	}
}

// attend returns when the process has ended, or must end and has.
func (c *container) attend(stop context.Context, process *cluster.Process) (order ending) {
	probing, cancel := context.WithCancel(stop)
	var group lifecycle.Group
	group.Go("probes", func() { prober{c}.run(probing) })
	defer func() {
		cancel()
		c.pod.pool.complain(context.Background(), group.Wait(unlimited))
	}()
	select {
	case <-process.Ended():
	case <-stop.Done():
		c.terminate(c.pod.killing, process)
	case order = <-c.ending:
		c.pod.event(corev1.EventTypeNormal, "Killing", "Container "+c.name+" "+order.why)
		limited, done := context.WithTimeout(c.pod.killing, order.grace)
		defer done()
		c.terminate(limited, process)
	}
	return order
}

// terminate has the process end: the preStop hook and SIGTERM until ctx ends, then SIGKILL.
func (c *container) terminate(ctx context.Context, process *cluster.Process) {
	if hooks := c.spec().Lifecycle; hooks != nil && hooks.PreStop != nil && ctx.Err() == nil {
		if err := (prober{c}).hook(ctx, "preStop", *hooks.PreStop); err != nil {
			c.pod.event(corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: ", err)
		}
	}
	if ctx.Err() == nil && process.Terminate(ctx) == nil {
		return
	}
	limited, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	_ = process.Kill(limited) // fails if it has ended, or if the supervisor has and every process with it
	_, _ = process.Wait(limited)
}

// end asks for the end of the process, if one runs and no one else has asked.
func (c *container) end(order ending) {
	select {
	case c.ending <- order:
	default:
	}
}

// restartChanged ends the process if the container has another image now.
func (c *container) restartChanged(pod *corev1.Pod) {
	c.pod.mu.Lock()
	changed := c.process != nil && c.status.Image != c.specOf(pod).Image
	c.pod.mu.Unlock()
	if changed {
		c.end(ending{why: "definition changed, will be restarted", grace: grace(pod, nil), again: true})
	}
}

func (c *container) specOf(pod *corev1.Pod) corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(spec corev1.Container) bool { return spec.Name == c.name })
	if i < 0 {
		return corev1.Container{Image: c.status.Image} // an init container
	}
	return pod.Spec.Containers[i]
}

// failure is a reason for which a container could not be started.
type failure struct {
	reason string
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func retryStart(err error, base time.Duration) time.Duration {
	if f, ok := errors.AsType[*failure](err); ok && f.reason == "ErrImagePull" {
		return base
	}
	return min(base, time.Second)
}

// start starts a process for the container as it is now.
func (c *container) start(stop context.Context) (*cluster.Process, error) {
	spec := c.spec()
	image, ok := c.pod.pool.o.Images[spec.Image]
	if !ok {
		return nil, &failure{"ErrImagePull",
			fmt.Errorf("image %q is not in the Options.Images of this node", spec.Image)}
	}
	c.pod.pool.disks.RLock()
	defer c.pod.pool.disks.RUnlock()
	command, err := c.command(stop, spec, image)
	if err == nil {
		err = errors.Join(c.emptyScratch(), c.pod.mounts(spec).makeSubPaths())
	}
	if err != nil {
		return nil, &failure{"CreateContainerConfigError", err}
	}
	command.Name = fmt.Sprintf("%s.%d", c.processName(), c.runs)
	// Not until stop ends: the supervisor may have started it then, and no one would end it.
	process, err := wire{c.pod}.launch(context.WithoutCancel(stop), command)
	if err != nil {
		return nil, &failure{"RunContainerError", err}
	}
	c.began(spec, process)
	return process, nil
}

// processName begins the names of the container's processes, and of their log files.
func (c *container) processName() string {
	pod := c.pod.first
	return fmt.Sprintf("%s.%s.%s.%s.%.8s", c.pod.node.Name, pod.Namespace, pod.Name, c.name, pod.UID)
}

// began notes that a process runs.
func (c *container) began(spec corev1.Container, process *cluster.Process) {
	select {
	case <-c.ending: // it was meant for the process before
	default:
	}
	w := c.pod
	w.mu.Lock()
	c.moveLast()
	c.status.RestartCount = c.runs
	c.runs++
	c.process, c.logs = process, [2]string{process.Log, c.logs[0]}
	c.status.Image, c.status.ImageID = spec.Image, spec.Image
	c.status.ContainerID = fmt.Sprintf("process://%s/%s/%d", w.first.UID, c.name, c.status.RestartCount)
	c.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	c.status.Started = new(spec.StartupProbe == nil)
	c.status.Ready = spec.StartupProbe == nil && spec.ReadinessProbe == nil && !c.isInit
	w.mu.Unlock()
	poke(w.changed)
	w.event(corev1.EventTypeNormal, "Started", "Started container "+c.name)
}

// moveLast keeps how the process before has ended. The caller holds pod.mu.
func (c *container) moveLast() {
	if c.status.State.Terminated != nil {
		c.status.LastTerminationState = corev1.ContainerState{Terminated: c.status.State.Terminated}
	}
}

// ended notes how the process has ended.
func (c *container) ended(process *cluster.Process) (code int32) {
	limited, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	status, err := process.Wait(limited)
	code, signal := exitOf(status)
	if err != nil {
		code, signal = 137, 9
	}
	t := &corev1.ContainerStateTerminated{ExitCode: code, Signal: signal, Reason: "Error", FinishedAt: metav1.Now()}
	t.Message = lastMessage(messageFile(c.pod.dir, c.name))
	if code == 0 {
		t.Reason = "Completed"
	} else if t.Message == "" && c.spec().TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		t.Message = tail(process.Log, 2048)
	}
	w := c.pod
	w.mu.Lock()
	if running := c.status.State.Running; running != nil {
		t.StartedAt = running.StartedAt
	}
	t.ContainerID = c.status.ContainerID
	c.process = nil
	c.status.State = corev1.ContainerState{Terminated: t}
	c.status.Ready, c.status.Started = c.isInit && code == 0, new(false)
	w.mu.Unlock()
	poke(w.changed)
	return code
}

// wait notes that the container waits for something.
func (c *container) wait(reason, message string) {
	w := c.pod
	w.mu.Lock()
	c.moveLast()
	c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	w.mu.Unlock()
	poke(w.changed)
}

func (c *container) startFailed(err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return // stopped
	}
	c.pod.mu.Lock()
	waiting := c.status.State.Waiting
	pulled := waiting != nil && strings.HasSuffix(waiting.Reason, "Pull") ||
		waiting != nil && waiting.Reason == "ImagePullBackOff"
	told := waiting != nil && waiting.Message == err.Error()
	c.pod.mu.Unlock()
	reason := f.reason
	if reason == "ErrImagePull" && pulled {
		reason = "ImagePullBackOff"
	}
	c.wait(reason, err.Error())
	if !told {
		c.pod.event(corev1.EventTypeWarning, "Failed", reason+": ", err)
	}
}

func (c *container) terminated() *corev1.ContainerStateTerminated {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.status.State.Terminated
}

func (c *container) succeeded() bool {
	t := c.terminated()
	return t != nil && t.ExitCode == 0
}

// exitOf reads how the supervisor says that a process has ended: "exit status 2", "signal: killed (core dumped)".
func exitOf(status string) (code, signal int32) {
	if _, err := fmt.Sscanf(status, "exit status %d", &code); err == nil {
		return code, 0
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(status, "signal: "), " (core dumped)")
	for s := syscall.Signal(1); s < 65; s++ {
		if s.String() == name {
			return 128 + int32(s), int32(s)
		}
	}
	return 255, 0
}

// scratch is the folder in which a container's processes start, unless they have a workingDir. Each finds it empty.
func (c *container) scratch() string { return filepath.Join(c.pod.dir, "containers", c.name) }

func (c *container) emptyScratch() error {
	return errors.Join(os.RemoveAll(c.scratch()), os.MkdirAll(c.scratch(), 0o755),
		os.MkdirAll(filepath.Dir(messageFile(c.pod.dir, c.name)), 0o755),
		os.WriteFile(messageFile(c.pod.dir, c.name), nil, 0o644))
}

// messageFile is what the terminationMessagePath of a container stands for, below the folder of its pod. It is empty
// when the process starts.
func messageFile(pod, container string) string { return filepath.Join(pod, "messages", container) }

// lastMessage returns what the process has written there, at most 4096 bytes, as the kubelet does.
func lastMessage(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "" // the process has removed it
	}
	return strings.ToValidUTF8(string(content[:min(len(content), 4096)]), "")
}
