package writes

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// shape is one way of taking the segments of a path for what the documentation of the API has.
type shape struct{ root, namespace, resource string }

// collections returns all ways of taking them for the path of a collection.
func collections(segments []string) (all []shape) {
	for i, marker := range segments {
		version := i + 1
		if marker == "apis" {
			version++
		} else if marker != "api" {
			continue
		}
		if i == 0 || version >= len(segments) {
			continue
		}
		root := strings.Join(segments[:version], "/")
		switch rest := segments[version+1:]; {
		case len(rest) == 1:
			all = append(all, shape{root, "", rest[0]})
		case len(rest) == 3 && rest[0] == "namespaces":
			all = append(all, shape{root, rest[1], rest[2]})
		}
	}
	return all
}

// inside takes the segments after a group's for the path of something of that resource.
func inside(segments []string, resource string) (namespace, name, subresource string, ok bool) {
	at := func(i int) string {
		if i < len(segments) {
			return segments[i]
		}
		return ""
	}
	itself := len(segments) < 4 || len(segments) == 4 && (at(3) == "status" || at(3) == "finalize")
	switch {
	case at(1) == "namespaces" && !(resource == "namespaces" && itself):
		return at(2), at(4), at(5), at(3) == resource
	default:
		return "", at(2), at(3), at(1) == resource && resource != ""
	}
}

// FuzzAddresses reads a path that an informer asks for, and one that is written to, and compares with a model that
// tries all the documented shapes.
func FuzzAddresses(f *testing.F) {
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/namespaces/a/pods", "/apis/g.io/stable/things", "/apis/g.io/v1/namespaces/api/things",
		"/api/v1/namespaces", "/x/apis/api/v1/pods", "/k8s/clusters/c-1/api/v1/pods", "//api//v1/pods/", "/version", "",
		"/apis/g.io/v1/namespaces/a/status", "/apis/g.io", "/api/v1/namespaces/a", "/apis/namespaces/v1/x",
	} {
		f.Add(path, path+"/p/status")
		f.Add(path, strings.Replace(path, "/pods", "/namespaces/b/pods/p", 1))
	}
	f.Fuzz(func(t *testing.T, asked, written string) {
		from, to := addressOf(&url.URL{Host: "S", Path: asked}), addressOf(&url.URL{Host: "s", Path: written})
		c, namespace, ok := collectionOf(from)
		all := collections(strings.Split(strings.TrimSuffix(from, "/"), "/"))
		require.Equal(t, len(all) > 0, ok, "%q was read as %+v, and may be any of %+v", from, c, all)
		if !ok {
			return
		}
		require.Contains(t, all, shape{c.root, namespace, c.Resource}, "%q", from)
		own, in := c.targetOf(from)
		require.True(t, in, "%q is not of its own collection", from)
		require.Equal(t, Target{Host: c.Host, Group: c.Group, Resource: c.Resource, Namespace: namespace}, own)

		rest, under := strings.CutPrefix(to, c.root+"/")
		got, in := c.targetOf(to)
		if !under {
			require.False(t, in, "%q is not under %q", to, c.root)
			return
		}
		space, name, subresource, is := inside(strings.Split(rest, "/"), c.Resource)
		require.Equal(t, is, in, "%q of %+v was read as %+v", to, c, got)
		if in {
			want := Target{c.Host, c.Group, c.Resource, space, name, subresource}
			require.Equal(t, want, got, "%q of %+v", to, c)
		}
		_ = GuessTarget(to)
	})
}

// FuzzAnswers encodes an object, or a list, in every encoding, and wants it read as what it is, whatever its kind; and
// it feeds the decoders with bytes that are anything.
func FuzzAnswers(f *testing.F) {
	f.Add("Pod", "v1", "p", "u", "7", "items", false, []byte("k8s\x00\x0a\x02\x0a\x00"))
	f.Add("AllowList", "g.io/v1", "p", "u", "7", "details", false, []byte(`{"items":[{}]}`))
	f.Add("Status", "g.io/v1", "p", "u", "7", "items", false, []byte(`{"kind":"Status","apiVersion":"v1","details":7}`))
	f.Add("Fleet", "g.io/v1", "p", "u", "7", "metadata", true, []byte{0xd9, 0xd9, 0xf7, 0xa0})
	f.Add("PodList", "v1", "p", "", "9", "", true, []byte(nil))
	f.Fuzz(func(t *testing.T, kind, version, name, uid, resourceVersion, field string, list bool, anything []byte) {
		for _, media := range []string{"application/json", "application/cbor", "application/vnd.kubernetes.protobuf"} {
			if !bytes.Contains(anything, []byte(metav1.DryRunAll)) {
				require.False(t, isDryDeletion(media, anything))
			}
			_, _ = DecodeMetadata(media, anything)
			if !bytes.Contains(anything, []byte("webhook")) && !bytes.Contains(anything, []byte("quota")) {
				status, _ := statusOf(media, anything)
				require.False(t, admissionFailed(status.Message))
			}
		}
		for _, s := range []*string{&kind, &version, &name, &uid, &resourceVersion, &field} {
			*s = strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return 'x'
				}
				return r
			}, *s)
		}
		meta := metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(uid), ResourceVersion: resourceVersion}
		want := []metav1.ObjectMeta{meta}
		content := map[string]any{field: []any{map[string]any{"metadata": map[string]any{"uid": "other"}}}}
		content["kind"], content["apiVersion"] = kind, version
		head := map[string]any{"name": name, "namespace": "a", "uid": uid, "resourceVersion": resourceVersion}
		content["metadata"] = head
		var message interface{ Marshal() ([]byte, error) } = &corev1.Pod{ObjectMeta: meta}
		if list {
			want = append(want, meta)
			content["metadata"] = map[string]any{"resourceVersion": resourceVersion}
			content["items"] = []any{map[string]any{"metadata": head}, map[string]any{"metadata": head}}
			pod := corev1.Pod{ObjectMeta: meta}
			head := metav1.ListMeta{ResourceVersion: resourceVersion}
			message = &corev1.PodList{ListMeta: head, Items: []corev1.Pod{pod, pod}}
		}
		if isStatus(version, kind) || !list && uid == "" {
			return // what the API itself means by it, or nothing that can be told from a list
		}
		raw, err := message.Marshal()
		require.NoError(t, err)
		typed := runtime.TypeMeta{APIVersion: version, Kind: kind}
		envelope, err := (&runtime.Unknown{TypeMeta: typed, Raw: raw}).Marshal()
		require.NoError(t, err)
		bodies := map[string][]byte{
			"application/vnd.kubernetes.protobuf": append([]byte("k8s\x00"), envelope...),
		}
		bodies["application/json"], err = json.Marshal(content)
		require.NoError(t, err)
		if kind != "" {
			bodies["application/cbor"] = encodeCBOR(t, &unstructured.Unstructured{Object: content})
		}
		for media, body := range bodies {
			got, err := DecodeMetadata(media, body)
			require.NoError(t, err, media)
			require.Len(t, got, len(want), media)
			for i := range want {
				require.Equal(t, want[i], got[i].ObjectMeta, media)
			}
		}
	})
}
