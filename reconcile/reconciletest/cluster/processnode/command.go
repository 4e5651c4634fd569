package processnode

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// command returns how to run a container: its command, arguments and environment, in which variables are expanded, and
// mount paths and 0.0.0.0 replaced.
func (c *container) command(ctx context.Context, spec corev1.Container, image Image) (cluster.Command, error) {
	words, err := image.command(spec.Command, spec.Args)
	if err != nil {
		return cluster.Command{}, err
	}
	return c.commandOf(ctx, spec, image, words)
}

// anywhere is the address 0.0.0.0, which a process listens on, unless it is a part of something longer, such as
// 0.0.0.0/0.
var anywhere = regexp.MustCompile(`\b0\.0\.0\.0($|[^/.\w])`)

// commandOf returns how to run some words in a container. The supervisor adds to its own environment, which is not the
// container's; so env(1) empties it.
func (c *container) commandOf(ctx context.Context, spec corev1.Container, image Image,
	words []string) (command cluster.Command, err error) {
	variables, names, err := c.environment(ctx, spec)
	if err != nil {
		return command, err
	}
	mounts := slices.Concat(mounts{{path.Clean(spec.TerminationMessagePath), messageFile(c.pod.dir, c.name)}},
		c.pod.mounts(spec))
	listens := wire{c.pod}.listensAt()
	for i := range words {
		words[i] = anywhere.ReplaceAllString(mounts.replace(expand(words[i], variables)), listens+"$1")
	}
	program, err := image.program(words[0])
	if err != nil {
		return command, err
	}
	command = cluster.Command{Path: "/usr/bin/env", Args: []string{"-i"}, Dir: c.scratch()}
	if spec.WorkingDir != "" {
		command.Dir = mounts.replace(spec.WorkingDir)
	}
	for _, name := range names {
		value := anywhere.ReplaceAllString(mounts.replace(variables[name]), listens+"$1")
		command.Args = append(command.Args, name+"="+value)
	}
	command.Args = append(append(command.Args, program), words[1:]...)
	return command, nil
}

// environment returns the variables of a container, and their names in order.
func (c *container) environment(ctx context.Context, spec corev1.Container) (vars map[string]string, names []string,
	err error) {
	pod, _ := c.pod.latest()
	host := pod.Spec.Hostname
	if host == "" {
		host = pod.Name
	}
	vars = map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": c.scratch(), "HOSTNAME": host,
	}
	if server, err := url.Parse(c.pod.pool.cluster.Config().Host); err == nil {
		if host, port, err := net.SplitHostPort(server.Host); err == nil {
			vars["KUBERNETES_SERVICE_HOST"], vars["KUBERNETES_SERVICE_PORT"] = host, port
		}
	}
	for _, from := range spec.EnvFrom {
		if err := c.envFrom(ctx, vars, from); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range spec.Env {
		value, known := expand(v.Value, vars), true
		if v.ValueFrom != nil {
			if value, known, err = c.valueOf(ctx, pod, *v.ValueFrom); err != nil {
				return nil, nil, fmt.Errorf("env %s: %w", v.Name, err)
			}
		}
		if known {
			vars[v.Name] = value
		}
	}
	return vars, slices.Sorted(maps.Keys(vars)), nil
}

// envFrom adds all keys of a ConfigMap or Secret.
func (c *container) envFrom(ctx context.Context, vars map[string]string, from corev1.EnvFromSource) error {
	ref, optional, kind := "", false, ""
	switch {
	case from.ConfigMapRef != nil:
		ref, optional, kind = from.ConfigMapRef.Name, or(from.ConfigMapRef.Optional, false), configMap
	case from.SecretRef != nil:
		ref, optional, kind = from.SecretRef.Name, or(from.SecretRef.Optional, false), secret
	}
	data, err := c.pod.dataOf(ctx, kind, ref)
	if apierrors.IsNotFound(err) && optional {
		return nil
	}
	for key, value := range data {
		vars[from.Prefix+key] = string(value)
	}
	return err
}

// valueOf returns the value that a source has. It is not known if the source is optional and missing.
func (c *container) valueOf(ctx context.Context, pod *corev1.Pod, from corev1.EnvVarSource) (value string, known bool,
	err error) {
	name, key, optional, kind := "", "", false, ""
	switch {
	case from.FieldRef != nil:
		value, err = c.pod.field(pod, from.FieldRef.FieldPath)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		name, key, optional, kind = r.Name, r.Key, or(r.Optional, false), configMap
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		name, key, optional, kind = r.Name, r.Key, or(r.Optional, false), secret
	}
	data, err := c.pod.dataOf(ctx, kind, name)
	if apierrors.IsNotFound(err) && optional {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	content, ok := data[key]
	if !ok && !optional {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, pod.Namespace, name)
	}
	return string(content), ok, nil
}

// The kinds that hold data.
const (
	configMap = "ConfigMap"
	secret    = "Secret"
)

// dataOf reads the data of a ConfigMap or Secret.
func (w *podWorker) dataOf(ctx context.Context, kind, name string) (map[string][]byte, error) {
	namespace := w.first.Namespace
	if kind == secret {
		o, err := w.pool.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return o.Data, nil
	}
	o, err := w.pool.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	maps.Copy(data, o.BinaryData)
	for key, value := range o.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

var subscript = regexp.MustCompile(`^metadata\.(labels|annotations)\['([^']+)'\]$`)

// field returns a field of the pod as the downward API gives it.
func (w *podWorker) field(pod *corev1.Pod, path string) (string, error) {
	if m := subscript.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return pod.Labels[m[2]], nil
		}
		return pod.Annotations[m[2]], nil
	}
	w.mu.Lock()
	ip := w.ip
	w.mu.Unlock()
	fields := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"metadata.labels": lines(pod.Labels), "metadata.annotations": lines(pod.Annotations),
		"spec.nodeName": pod.Spec.NodeName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.hostIP": hostIP, "status.hostIPs": hostIP, "status.podIP": ip, "status.podIPs": ip,
	}
	value, ok := fields[path]
	if !ok {
		return "", fmt.Errorf("this node does not know fieldPath %s", path)
	}
	return value, nil
}

// lines writes a map as the downward API does.
func lines(m map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%q\n", key, m[key])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var reference = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expand replaces $(NAME) by the variable's value, and $$ by $. What names no variable stays as it is.
func expand(s string, vars map[string]string) string {
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		if value, ok := vars[ref[2:len(ref)-1]]; ok {
			return value
		}
		return ref
	})
}
