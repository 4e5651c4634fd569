package processnode_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

func (w *world) configMap(name string, data map[string]string) {
	w.t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := configMaps.Create(w.t.Context(), o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = configMaps.Update(w.t.Context(), o, metav1.UpdateOptions{})
	}
	require.NoError(w.t, err)
}

func (w *world) secret(name string, data map[string]string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Secrets(w.namespace).Create(w.t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	w.configMap("config", map[string]string{"color": "blue", "size": "3"})
	w.secret("secret", map[string]string{"word": "sesame"})
	pod := w.pod("env", "env=IP", "env=ABOUT", "env=COLOR", "env=ALL_size", "env=WORD", "env=NONE", "env=HOSTNAME",
		"env=LEAK", "say=$(ABOUT) $(MISSING) $$(ABOUT)")
	pod.Labels = map[string]string{"tier": "gold"}
	from := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	c := &pod.Spec.Containers[0]
	c.EnvFrom = []corev1.EnvFromSource{{Prefix: "ALL_", ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}}
	c.Env = []corev1.EnvVar{
		{Name: "IP", ValueFrom: from("status.podIP")},
		{Name: "TIER", ValueFrom: from("metadata.labels['tier']")},
		{Name: "ABOUT", Value: "$(TIER) in $(LATER)"},
		{Name: "LATER", Value: "no"},
		{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Key: "color"}}},
		{Name: "WORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "word"}}},
		{Name: "NONE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "word", Optional: new(true)}}},
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.create(pod)
	pod = w.until("env", "succeeded", succeeded)
	require.Equal(t, "IP="+pod.Status.PodIP+"\nABOUT=gold in $(LATER)\nCOLOR=blue\nALL_size=3\nWORD=sesame\nNONE=\n"+
		"HOSTNAME=env\nLEAK=\ngold in $(LATER) $(MISSING) $(ABOUT)\n", w.says("env", "gold in"))
}

// All kinds of files in one projected volume follow their objects.
func TestFilesFollowTheirObjects(t *testing.T) {
	w := newWorld(t)
	w.configMap("config", map[string]string{"a": "1", "b": "1"})
	w.secret("secret", map[string]string{"word": "sesame"})
	pod := w.pod("files", "cat=/etc/all/a", "cat=/etc/all/words/one", "cat=/etc/all/labels", "say=/etc/all", "wait")
	pod.Labels = map[string]string{"tier": "gold"}
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod.Spec.Volumes = []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("config")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: named("secret"),
				Items: []corev1.KeyToPath{{Key: "word", Path: "words/one", Mode: new(int32(0o400))}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels",
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "all", MountPath: "/etc/all"}}
	w.create(pod)
	log := w.says("files", "waiting")
	require.Regexp(t, "^1\nsesame\ntier=\"gold\"\n/.*/volumes/all\nwaiting", log)
	dir := regexp.MustCompile(`/.*/volumes/all`).FindString(log)
	require.Regexp(t, `^ey.*\..*\.`, read(t, dir+"/token"))
	info, err := os.Stat(dir + "/words/one")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), info.Mode())

	w.configMap("config", map[string]string{"a": "2", "c": "2"})
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(dir + "/a")
		return err == nil && string(content) == "2"
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { _, err := os.Lstat(dir + "/b"); return os.IsNotExist(err) }, time.Minute,
		20*time.Millisecond)
	require.Equal(t, "2", read(t, dir+"/c"))
}

// claim creates a claim, and adds it to a pod as /data.
func (w *world) claim(pod *corev1.Pod, name string) {
	w.t.Helper()
	_, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: new(processnode.StorageClass),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(w.t, err)
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "data", MountPath: "/data"})
}

// A disk lives as long as its claim, and not as long as a pod.
func TestDisks(t *testing.T) {
	w := newWorld(t)
	run := func(name string) {
		pod := w.pod(name, "add=/data/file", "cat=/data/file", "wait")
		w.claim(pod, "disk")
		pod.Spec.Containers[0].VolumeMounts[0].SubPath = "sub"
		w.create(pod)
	}
	run("one")
	require.Equal(t, "line\n\nwaiting\n", w.says("one", "waiting"))
	require.NoError(t, w.pool.Kill(t.Context(), w.key("one"), ""))
	w.until("one", "restarted", restarts(1))
	require.Equal(t, "line\nline\n\nwaiting\n", w.says("one", "waiting"))
	w.delete("one", 1)
	w.gone("one")

	run("two")
	require.Equal(t, "line\nline\nline\n\nwaiting\n", w.says("two", "waiting"))
	disk, err := w.pool.Disk(t.Context(), w.key("disk"))
	require.NoError(t, err)
	require.Equal(t, "line\nline\nline\n", read(t, disk+"/sub/file"))
	require.NoError(t, w.pool.LoseDisk(t.Context(), w.key("disk")))
	w.until("two", "restarted", restarts(1))
	require.Equal(t, "line\n\nwaiting\n", w.says("two", "waiting"))

	w.delete("two", 1)
	claims := w.client.CoreV1().PersistentVolumeClaims(w.namespace)
	require.NoError(t, claims.Delete(t.Context(), "disk", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { _, err := os.Stat(disk); return os.IsNotExist(err) }, time.Minute,
		20*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), filepath.Base(disk), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 20*time.Millisecond)
	require.ErrorContains(t, w.pool.LoseDisk(t.Context(), w.key("disk")), "not found")
}
