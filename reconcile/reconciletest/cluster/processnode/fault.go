package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// The methods of this file name a container by its pod and its name, which may be empty if the pod has only one. They
// return an error if the pod is not on a node of the pool that is up, or, but for LogFile, if the container does not
// run.

// Kill sends SIGKILL to the processes of a container, and returns when they have ended. The container then starts again
// as its restart policy says.
func (p *Pool) Kill(ctx context.Context, pod types.NamespacedName, container string) error {
	process, err := p.process(pod, container)
	if err != nil {
		return err
	}
	return process.Kill(ctx)
}

// Freeze sends SIGSTOP to the processes of a container, and returns when they have stopped: their sockets stay open,
// and nothing answers. Probes fail then, as they do in a cluster.
func (p *Pool) Freeze(ctx context.Context, pod types.NamespacedName, container string) error {
	process, err := p.process(pod, container)
	if err != nil {
		return err
	}
	return process.Stop(ctx)
}

// Thaw undoes [Pool.Freeze].
func (p *Pool) Thaw(ctx context.Context, pod types.NamespacedName, container string) error {
	process, err := p.process(pod, container)
	if err != nil {
		return err
	}
	return process.Continue(ctx)
}

// LoseDisk empties the disk of a PersistentVolumeClaim, as if it had been replaced by a new one. Containers that run
// with it are killed, and never see a part of the old content and a part of the new.
func (p *Pool) LoseDisk(ctx context.Context, claim types.NamespacedName) error {
	o, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("lose the disk of claim %s: %w", claim, err)
	}
	disk := storage{p}.diskDir(o.Spec.VolumeName)
	if _, err := os.Stat(disk); err != nil || o.Spec.VolumeName == "" {
		return fmt.Errorf("lose the disk of claim %s: it has none in this pool", claim)
	}
	p.disks.Lock()
	defer p.disks.Unlock()
	users := p.usersOf(claim)
	for _, process := range users {
		if err := process.Stop(ctx); err != nil && !hasEnded(process) {
			return fmt.Errorf("lose the disk of claim %s: %w", claim, err)
		}
	}
	lost := errors.Join(os.Rename(disk, disk+".lost"), os.Mkdir(disk, 0o755))
	for _, process := range users {
		if err := process.Kill(ctx); err != nil && !hasEnded(process) {
			lost = errors.Join(lost, err)
		}
	}
	if err := errors.Join(lost, os.RemoveAll(disk+".lost")); err != nil {
		return fmt.Errorf("lose the disk of claim %s: %w", claim, err)
	}
	return nil
}

func hasEnded(process *cluster.Process) bool {
	select {
	case <-process.Ended():
		return true
	default:
		return false
	}
}

// usersOf returns the processes of the pods with a claim.
func (p *Pool) usersOf(claim types.NamespacedName) (users []*cluster.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		for _, v := range w.first.Spec.Volumes {
			if w.first.Namespace != claim.Namespace || v.PersistentVolumeClaim == nil ||
				v.PersistentVolumeClaim.ClaimName != claim.Name {
				continue
			}
			w.mu.Lock()
			for _, c := range w.all() {
				if c.process != nil {
					users = append(users, c.process)
				}
			}
			w.mu.Unlock()
		}
	}
	return users
}

// Exec runs a command in a container, beside its process, and returns what it writes to its standard output and error.
// The program is one of the container's image. A status other than 0 is an error. If ctx ends first the command is
// killed.
func (p *Pool) Exec(ctx context.Context, pod types.NamespacedName, container string, command ...string) (string,
	error) {
	c, err := p.container(pod, container)
	if err != nil {
		return "", err
	}
	if _, err := p.process(pod, container); err != nil {
		return "", err
	}
	return c.exec(ctx, fmt.Sprintf("exec-%d", p.execs.Add(1)), command)
}

// LogFile returns the path of the file with the output of a container's latest process. It stays until the cluster
// ends, also when the pod is gone.
func (p *Pool) LogFile(pod types.NamespacedName, container string) (string, error) {
	path, _, err := p.logOf(pod, container, false)
	return path, err
}

// Disk returns the folder that a PersistentVolumeClaim is bound to.
func (p *Pool) Disk(ctx context.Context, claim types.NamespacedName) (string, error) {
	o, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	disk := storage{p}.diskDir(o.Spec.VolumeName)
	if _, err := os.Stat(disk); err != nil || o.Spec.VolumeName == "" || o.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("claim %s is not bound to a disk of this pool", claim)
	}
	return filepath.Clean(disk), nil
}

// container finds a container.
func (p *Pool) container(pod types.NamespacedName, name string) (*container, error) {
	w := p.worker(pod)
	if w == nil {
		return nil, fmt.Errorf("pod %s is on no node of this pool that is up", pod)
	}
	if name == "" && len(w.containers) == 1 {
		return w.containers[0], nil
	}
	for _, c := range w.all() {
		if c.name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("pod %s has no container %q", pod, name)
}

// process finds the process of a container that runs.
func (p *Pool) process(pod types.NamespacedName, name string) (*cluster.Process, error) {
	c, err := p.container(pod, name)
	if err != nil {
		return nil, err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if c.process == nil {
		return nil, fmt.Errorf("container %q of pod %s does not run", c.name, pod)
	}
	return c.process, nil
}
