package processnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// freshEvery is how often the files of ConfigMaps, Secrets and the downward API are compared with their objects.
const freshEvery = 2 * time.Second

// mounter is the part of a podWorker that makes its volumes. One goroutine uses it at a time: that of the containers,
// and then the one that keeps the files fresh.
type mounter struct {
	*podWorker
	written map[string]map[string]file // by volume and path
	tokens  map[string]token           // by audience
}

type file struct {
	content string
	mode    os.FileMode
}

type token struct {
	value string
	renew time.Time
}

// volumeDir returns the folder of a volume that mount has made.
func (w *podWorker) volumeDir(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if disk, ok := w.disks[name]; ok {
		return disk
	}
	return filepath.Join(w.dir, "volumes", name)
}

// mount makes the volumes of the pod, or brings those up to date that are there.
func (w *mounter) mount(ctx context.Context, pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if err := w.mountOne(ctx, pod, v); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	return nil
}

// makeSubPaths makes a folder of each subPath that does not exist.
func (m mounts) makeSubPaths() error {
	for _, mount := range m {
		if _, err := os.Stat(mount.on); errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(mount.on, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *mounter) mountOne(ctx context.Context, pod *corev1.Pod, v corev1.Volume) error {
	if v.PersistentVolumeClaim != nil {
		disk, err := storage{w.pool}.disk(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName, w.node.Name)
		if err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.disks[v.Name] = disk
		return nil
	}
	if v.EmptyDir != nil {
		return os.MkdirAll(w.volumeDir(v.Name), 0o755)
	}
	files, err := w.files(ctx, pod, v)
	if err != nil {
		return err
	}
	if w.written[v.Name] != nil && reflect.DeepEqual(files, w.written[v.Name]) {
		return nil
	}
	if err := writeAtomically(w.volumeDir(v.Name), files); err != nil {
		return err
	}
	w.written[v.Name] = files
	return nil
}

// keepFresh brings the files up to date until the containers must end.
func (w *mounter) keepFresh() {
	for lifecycle.Sleep(w.stopping, freshEvery) {
		pod, _ := w.latest()
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil || v.EmptyDir != nil {
				continue
			}
			if err := w.mountOne(w.stopping, pod, v); err != nil && !apierrors.IsNotFound(err) {
				w.pool.complain(w.stopping, fmt.Errorf("pod %s: volume %q: %w", keyOf(pod), v.Name, err))
			}
		}
	}
}

// files returns the files of a volume by path.
func (w *mounter) files(ctx context.Context, pod *corev1.Pod, v corev1.Volume) (map[string]file, error) {
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return w.dataFiles(ctx, configMap, s.Name, s.Items, or(s.DefaultMode, 0o644), or(s.Optional, false))
	case v.Secret != nil:
		s := v.Secret
		return w.dataFiles(ctx, secret, s.SecretName, s.Items, or(s.DefaultMode, 0o644), or(s.Optional, false))
	case v.DownwardAPI != nil:
		return w.fieldFiles(pod, v.DownwardAPI.Items, or(v.DownwardAPI.DefaultMode, 0o644))
	}
	all := map[string]file{}
	mode := or(v.Projected.DefaultMode, 0o644)
	for _, s := range v.Projected.Sources {
		var files map[string]file
		var err error
		switch {
		case s.ConfigMap != nil:
			files, err = w.dataFiles(ctx, configMap, s.ConfigMap.Name, s.ConfigMap.Items, mode,
				or(s.ConfigMap.Optional, false))
		case s.Secret != nil:
			files, err = w.dataFiles(ctx, secret, s.Secret.Name, s.Secret.Items, mode, or(s.Secret.Optional, false))
		case s.DownwardAPI != nil:
			files, err = w.fieldFiles(pod, s.DownwardAPI.Items, mode)
		case s.ServiceAccountToken != nil:
			files, err = w.tokenFile(ctx, pod, *s.ServiceAccountToken, mode)
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

func (w *mounter) dataFiles(ctx context.Context, kind, name string, items []corev1.KeyToPath, mode int32,
	optional bool) (map[string]file, error) {
	data, err := w.dataOf(ctx, kind, name)
	if apierrors.IsNotFound(err) && optional {
		return map[string]file{}, nil
	}
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	for _, item := range items {
		content, ok := data[item.Key]
		if ok {
			files[item.Path] = file{string(content), os.FileMode(or(item.Mode, mode))}
		} else if !optional {
			return nil, fmt.Errorf("%s %s has no key %q", kind, name, item.Key)
		}
	}
	if len(items) == 0 {
		for key, content := range data {
			files[key] = file{string(content), os.FileMode(mode)}
		}
	}
	return files, nil
}

func (w *mounter) fieldFiles(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode int32) (map[string]file,
	error) {
	files := map[string]file{}
	for _, item := range items {
		value, err := w.field(pod, item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		files[item.Path] = file{value, os.FileMode(or(item.Mode, mode))}
	}
	return files, nil
}

// tokenFile returns a token of the pod's service account. It is renewed after four fifths of its life.
func (w *mounter) tokenFile(ctx context.Context, pod *corev1.Pod, s corev1.ServiceAccountTokenProjection,
	mode int32) (map[string]file, error) {
	known := w.tokens[s.Audience]
	if time.Now().After(known.renew) {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: s.ExpirationSeconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name,
				UID: pod.UID},
		}}
		if s.Audience != "" {
			request.Spec.Audiences = []string{s.Audience}
		}
		answer, err := w.pool.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx,
			pod.Spec.ServiceAccountName,
			request, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		left := time.Until(answer.Status.ExpirationTimestamp.Time)
		known = token{answer.Status.Token, time.Now().Add(left * 4 / 5)}
		w.tokens[s.Audience] = known
	}
	return map[string]file{s.Path: {known.value, os.FileMode(mode)}}, nil
}

// writeAtomically replaces the files of a folder all at once, as the kubelet does: they are links by way of the link
// ..data, which is renamed over.
func writeAtomically(dir string, files map[string]file) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		path := filepath.Join(made, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.content), f.mode); err != nil {
			return err
		}
		if err := os.Chmod(path, f.mode); err != nil { // whatever the umask
			return err
		}
	}
	data := filepath.Join(dir, "..data")
	old, _ := os.Readlink(data)
	if err := os.RemoveAll(data + "_tmp"); err != nil { // of a node that was stopped at this point
		return err
	}
	if err := os.Symlink(filepath.Base(made), data+"_tmp"); err != nil {
		return err
	}
	if err := os.Rename(data+"_tmp", data); err != nil {
		return err
	}
	if err := linkAll(dir, made); err != nil || old == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, old))
}

// linkAll makes a link into ..data for each entry of made, and removes the links of what is gone.
func linkAll(dir, made string) error {
	entries, err := os.ReadDir(made)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	for _, entry := range entries {
		now[entry.Name()] = true
		err := os.Symlink(filepath.Join("..data", entry.Name()), filepath.Join(dir, entry.Name()))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	links, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, link := range links {
		if name := link.Name(); !strings.HasPrefix(name, "..") && !now[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
