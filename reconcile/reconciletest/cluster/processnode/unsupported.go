package processnode

import (
	"errors"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// problems are the fields of a pod that this node would have to honour and does not.
type problems []string

func (p *problems) add(asked bool, words ...string) {
	if asked {
		*p = append(*p, strings.Join(words, ""))
	}
}

// unsupported returns an error that names each such field, so that the node does not run the pod as something else. The
// package documentation lists what is ignored.
func unsupported(pod *corev1.Pod) error {
	var p problems
	p.add(or(pod.Spec.ShareProcessNamespace, false), "spec.shareProcessNamespace")
	p.add(pod.Spec.HostPID, "spec.hostPID")
	p.add(pod.Spec.HostIPC, "spec.hostIPC")
	p.add(len(pod.Spec.HostAliases) > 0, "spec.hostAliases")
	for _, v := range pod.Spec.Volumes {
		p.volume("volume "+v.Name+": ", v)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		p.container("container "+c.Name+": ", c)
	}
	if p == nil {
		return nil
	}
	return errors.New("this node runs containers as processes, and does not support " + strings.Join(p, "; "))
}

func (p *problems) volume(at string, v corev1.Volume) {
	switch {
	case v.EmptyDir != nil, v.PersistentVolumeClaim != nil, v.ConfigMap != nil, v.Secret != nil:
	case v.DownwardAPI != nil:
		p.fields(at, v.DownwardAPI.Items)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			switch {
			case s.ConfigMap != nil, s.Secret != nil, s.ServiceAccountToken != nil:
			case s.DownwardAPI != nil:
				p.fields(at, s.DownwardAPI.Items)
			default:
				p.add(true, at, "a projected source of this kind")
			}
		}
	default:
		p.add(true, at, "a volume of this kind")
	}
}

func (p *problems) fields(at string, items []corev1.DownwardAPIVolumeFile) {
	for _, item := range items {
		p.add(item.FieldRef == nil, at, "resourceFieldRef")
	}
}

func (p *problems) container(at string, c corev1.Container) {
	p.add(c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0, at, "a restartPolicy of its own")
	p.add(c.Stdin || c.TTY, at, "stdin and tty")
	p.add(len(c.VolumeDevices) > 0, at, "volumeDevices")
	inside := c.WorkingDir == ""
	for _, m := range c.VolumeMounts {
		to := path.Clean(m.MountPath)
		p.add(m.SubPathExpr != "", at, "subPathExpr")
		p.add(!path.IsAbs(to) || to == "/", at, "mountPath ", m.MountPath)
		inside = inside || path.Clean(c.WorkingDir) == to || strings.HasPrefix(path.Clean(c.WorkingDir), to+"/")
	}
	p.add(!inside, at, "a workingDir outside of its volumes")
	for _, e := range c.Env {
		from := e.ValueFrom
		p.add(from != nil && from.FieldRef == nil && from.ConfigMapKeyRef == nil && from.SecretKeyRef == nil,
			at, "a source of this kind for env ", e.Name)
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		p.add(probe != nil && probe.GRPC != nil, at, "a grpc probe")
	}
	if hooks := c.Lifecycle; hooks != nil {
		p.add(hooks.StopSignal != nil, at, "lifecycle.stopSignal")
		for _, hook := range []*corev1.LifecycleHandler{hooks.PostStart, hooks.PreStop} {
			p.add(hook != nil && hook.TCPSocket != nil, at, "a tcpSocket hook")
		}
	}
}
