package reconciletest

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// twoVersions defines doors.corpus.example.com: v1 has spec.width, v1alpha1 has spec.size; v1alpha1 is stored. more is
// put below spec.
func twoVersions(more string) []byte {
	return []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: doors.corpus.example.com}
spec:
  group: corpus.example.com
  scope: Namespaced
  names: {plural: doors, kind: Door, singular: door, listKind: DoorList}
` + more + `
  versions:
  - name: v1alpha1
    served: true
    storage: true
    deprecated: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, maximum: 99}, both: {type: string}}}
          status: {type: object, properties: {open: {type: boolean}}}
  - name: v1
    served: true
    storage: false
    subresources: {status: {}, scale: {specReplicasPath: .spec.width, statusReplicasPath: .status.width}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              width: {type: integer, maximum: 999}
              both: {type: string}
              colour: {type: string, default: white}
          status: {type: object, properties: {open: {type: boolean}, width: {type: integer}}}
`)
}

const byWebhook = `
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {url: "https://doors.example.com/convert"}
`

// convertDoors is a conversion webhook: width is ten times size. alter changes an answer.
func convertDoors(alter func(objects []map[string]any) []map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked := review["request"].(map[string]any)
		var converted []map[string]any
		for _, o := range asked["objects"].([]any) {
			o := o.(map[string]any)
			o["apiVersion"] = asked["desiredAPIVersion"]
			if spec, ok := o["spec"].(map[string]any); ok {
				if size, ok := spec["size"].(float64); ok {
					delete(spec, "size")
					spec["width"] = size * 10
				} else if width, ok := spec["width"].(float64); ok {
					delete(spec, "width")
					spec["size"] = float64(int(width) / 10)
				}
			}
			converted = append(converted, o)
		}
		if alter != nil {
			converted = alter(converted)
		}
		delete(review, "request")
		review["response"] = map[string]any{"uid": asked["uid"], "convertedObjects": converted,
			"result": map[string]any{"status": "Success"}}
		_ = json.NewEncoder(w).Encode(review)
	}
}

// doors returns a server of doors, and a client for each version.
func doors(t *testing.T, more string, webhook http.Handler) (s *Server, v1, v1alpha1 dynamic.ResourceInterface) {
	resources, err := ReadCRDs(twoVersions(more))
	require.NoError(t, err)
	require.Len(t, resources, 2)
	s = NewServer(t, Options{Resources: resources, Webhooks: map[string]http.Handler{"doors.example.com": webhook}})
	config := s.Config()
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	in := func(version string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: "corpus.example.com", Version: version,
			Resource: "doors"}).Namespace("default")
	}
	return s, in("v1"), in("v1alpha1")
}

func door(version, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "corpus.example.com/" + version,
		"kind": "Door", "spec": spec}}
	u.SetName(name)
	return u
}

func specOfDoor(u *unstructured.Unstructured) map[string]any {
	return u.Object["spec"].(map[string]any)
}

func TestVersionsThatAreNotConverted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v1, v1alpha1 := doors(t, "", nil)
		made, err := v1.Create(t.Context(), door("v1", "a", map[string]any{"width": int64(70), "both": "x"}),
			metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, "x", specOfDoor(made)["both"])
		require.NotContains(t, specOfDoor(made), "width", "what v1alpha1 does not have is not stored")
		old, err := v1alpha1.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "corpus.example.com/v1alpha1", old.GetAPIVersion())
		require.Equal(t, map[string]any{"both": "x"}, specOfDoor(old))
		require.Equal(t, made.GetResourceVersion(), old.GetResourceVersion())
		require.Equal(t, made.GetUID(), old.GetUID())
		held, ok := Get[*unstructured.Unstructured](s, "doors", "default", "a")
		require.True(t, ok)
		require.Equal(t, "corpus.example.com/v1alpha1", held.GetAPIVersion())
		held, _ = Get[*unstructured.Unstructured](s, "doors.v1.corpus.example.com", "default", "a")
		require.Equal(t, "corpus.example.com/v1", held.GetAPIVersion())
	})
}

func TestVersionsThatAWebhookConverts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v1, v1alpha1 := doors(t, byWebhook, convertDoors(nil))
		watched, err := v1alpha1.Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		defer watched.Stop()
		made, err := v1.Create(t.Context(), door("v1", "a", map[string]any{"width": int64(70)}),
			metav1.CreateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 70, specOfDoor(made)["width"])
		seen := (<-watched.ResultChan()).Object.(*unstructured.Unstructured)
		require.EqualValues(t, 7, specOfDoor(seen)["size"])
		require.Equal(t, made.GetResourceVersion(), seen.GetResourceVersion())
		list, err := v1alpha1.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, "DoorList", list.GetKind())
		require.EqualValues(t, 7, specOfDoor(&list.Items[0])["size"])

		// A write in the other version: the generation moves, and the fields have owners in both versions.
		_, err = v1alpha1.Patch(t.Context(), "a", types.ApplyPatchType,
			[]byte(`{"apiVersion":"corpus.example.com/v1alpha1","kind":"Door","metadata":{"name":"a"},`+
				`"spec":{"size":8}}`),
			metav1.PatchOptions{FieldManager: "other"})
		require.ErrorContains(t, err, `using corpus.example.com/v1: .spec.width`)
		changed, err := v1alpha1.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":8}}`),
			metav1.PatchOptions{FieldManager: "other"})
		require.NoError(t, err)
		require.EqualValues(t, 2, changed.GetGeneration())
		got, err := v1.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 80, specOfDoor(got)["width"])
		scaled, err := v1.Get(t.Context(), "a", metav1.GetOptions{}, "scale")
		require.NoError(t, err)
		require.EqualValues(t, 80, specOfDoor(scaled)["replicas"])
		_, err = v1alpha1.Get(t.Context(), "a", metav1.GetOptions{}, "scale")
		require.True(t, apierrors.IsNotFound(err), "v1alpha1 has no scale: %v", err)
		same, err := v1alpha1.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":8}}`),
			metav1.PatchOptions{FieldManager: "other"})
		require.NoError(t, err)
		require.Equal(t, changed.GetResourceVersion(), same.GetResourceVersion(), "nothing has changed")
		opened, err := v1.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"status":{"open":true}}`),
			metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		require.EqualValues(t, 2, opened.GetGeneration())
		require.NoError(t, v1alpha1.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		_, err = v1.Get(t.Context(), "a", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err))
	})
}

// TestConversionsThatFail has the words of the real server.
func TestConversionsThatFail(t *testing.T) {
	first := func(change func(o map[string]any)) http.Handler {
		return convertDoors(func(all []map[string]any) []map[string]any { change(all[0]); return all })
	}
	metadata := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	for name, test := range map[string]struct {
		webhook http.Handler
		want    string
	}{
		"nothing": {convertDoors(func([]map[string]any) []map[string]any { return nil }),
			"conversion webhook for corpus.example.com/v1alpha1, Kind=Door returned 0 objects, expected 1"},
		"another version": {first(func(o map[string]any) { o["apiVersion"] = "corpus.example.com/v2" }),
			"returned invalid object at index 0: invalid groupVersion (expected corpus.example.com/v1, received " +
				"corpus.example.com/v2)"},
		"another name": {first(func(o map[string]any) { metadata(o)["name"] = "b" }),
			"returned invalid object: must have the same name: a != b"},
		"another UID": {first(func(o map[string]any) { metadata(o)["uid"] = "b" }), "must have the same UID: "},
		"bad labels": {first(func(o map[string]any) { metadata(o)["labels"] = map[string]any{"a b": "c"} }),
			"returned invalid metadata: metadata.labels: Invalid value: \"a b\""},
		"no review": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }),
			"failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind="},
		"HTTP 500": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }),
			`failed: an error on the server ("no") has prevented the request from succeeding`},
		"slow": {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }),
			`failed: Post "https://doors.example.com/convert?timeout=30s": context deadline exceeded`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, v1, v1alpha1 := doors(t, byWebhook, test.webhook)
				_, err := v1alpha1.Create(t.Context(), door("v1alpha1", "a", map[string]any{}), metav1.CreateOptions{})
				require.NoError(t, err)
				_, err = v1.Get(t.Context(), "a", metav1.GetOptions{})
				require.ErrorContains(t, err, test.want)
				require.True(t, apierrors.IsInternalError(err), "%v", err)
				_, err = v1.List(t.Context(), metav1.ListOptions{})
				require.Equal(t, metav1.StatusReasonStoreReadError, apierrors.ReasonForError(err))
				require.ErrorContains(t, err, test.want)
				require.NoError(t, v1alpha1.Delete(t.Context(), "a", metav1.DeleteOptions{}))
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// TestMetadataThatAConversionCannotChange is all but labels and annotations.
func TestMetadataThatAConversionCannotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v1, v1alpha1 := doors(t, byWebhook, convertDoors(func(all []map[string]any) []map[string]any {
			m := all[0]["metadata"].(map[string]any)
			m["finalizers"], m["labels"], m["generation"] = []any{"x.example.com/y"}, map[string]any{"l": "m"}, 7
			return all
		}))
		_, err := v1alpha1.Create(t.Context(), door("v1alpha1", "a", map[string]any{}), metav1.CreateOptions{})
		require.NoError(t, err)
		got, err := v1.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Empty(t, got.GetFinalizers())
		require.EqualValues(t, 1, got.GetGeneration())
		require.Equal(t, map[string]string{"l": "m"}, got.GetLabels())
	})
}

// TestStorageMigration stores objects in another version, one after the other.
func TestStorageMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		convert := convertDoors(nil)
		s, v1, v1alpha1 := doors(t, byWebhook, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			calls.Add(1)
			convert(w, req)
		}))
		_, err := v1alpha1.Create(t.Context(), door("v1alpha1", "a", map[string]any{"size": int64(7)}),
			metav1.CreateOptions{})
		require.NoError(t, err)
		require.Zero(t, calls.Load(), "what is stored as it comes is not converted")
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		crds := client.Resource(definitions)
		crd, err := crds.Get(t.Context(), "doors.corpus.example.com", metav1.GetOptions{})
		require.NoError(t, err)
		stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		require.Equal(t, []string{"v1alpha1"}, stored)
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		versions[0].(map[string]any)["storage"], versions[1].(map[string]any)["storage"] = false, true
		require.NoError(t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
		crd, err = crds.Update(t.Context(), crd, metav1.UpdateOptions{})
		require.NoError(t, err)
		stored, _, _ = unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		require.Equal(t, []string{"v1alpha1", "v1"}, stored)

		before, err := v1.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		after, err := v1.Update(t.Context(), before, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NotEqual(t, before.GetResourceVersion(), after.GetResourceVersion(), "it is stored in another version")
		require.EqualValues(t, 70, specOfDoor(after)["width"])
		again, err := v1.Update(t.Context(), after, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, after.GetResourceVersion(), again.GetResourceVersion())
		require.NoError(t, unstructured.SetNestedStringSlice(crd.Object, []string{"v1"}, "status", "storedVersions"))
		_, err = crds.UpdateStatus(t.Context(), crd, metav1.UpdateOptions{})
		require.NoError(t, err)

		// A list that makes no sense is taken, and put right or refused by the next write that is not of the status.
		patch := func(text string, subresources ...string) error {
			var err error
			crd, err = crds.Patch(t.Context(), "doors.corpus.example.com", types.MergePatchType, []byte(text),
				metav1.PatchOptions{}, subresources...)
			return err
		}
		require.NoError(t, patch(`{"status":{"storedVersions":[]}}`, "status"))
		stored, _, _ = unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		require.Empty(t, stored)
		require.NoError(t, patch(`{"metadata":{"labels":{"a":"b"}}}`))
		stored, _, _ = unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		require.Equal(t, []string{"v1"}, stored)
		require.NoError(t, patch(`{"status":{"storedVersions":["v1","v9"]}}`, "status"))
		require.ErrorContains(t, patch(`{"metadata":{"labels":{"a":"c"}}}`),
			`status.storedVersions[1]: Invalid value: "v9": missing from spec.versions`)
		require.NoError(t, patch(`{"status":{"storedVersions":["v1"]}}`, "status"))
		crd, err = crds.Get(t.Context(), "doors.corpus.example.com", metav1.GetOptions{})
		require.NoError(t, err)

		// What is not modelled of a definition is refused.
		for _, patch := range []string{`{"spec":{"names":{"shortNames":["d"]}}}`,
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"surprise":1}}}}}`} {
			_, err = crds.Patch(t.Context(), crd.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			require.ErrorContains(t, err, "not modelled")
		}
	})
}

// TestAChangeOfTheConversion is seen by lists and watches, too, of what they have shown before.
func TestAChangeOfTheConversion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v1, v1alpha1 := doors(t, "", convertDoors(nil))
		_, err := v1alpha1.Create(t.Context(), door("v1alpha1", "a", map[string]any{"size": int64(7)}),
			metav1.CreateOptions{})
		require.NoError(t, err)
		shown := func() map[string]any {
			list, err := v1.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			w, err := v1.Watch(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			defer w.Stop()
			spec := specOfDoor(&list.Items[0])
			require.Equal(t, spec, specOfDoor((<-w.ResultChan()).Object.(*unstructured.Unstructured)))
			return spec
		}
		require.NotContains(t, shown(), "width", "nothing is converted")
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		_, err = client.Resource(definitions).Patch(t.Context(), "doors.corpus.example.com", types.MergePatchType,
			[]byte(`{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],`+
				`"clientConfig":{"url":"https://doors.example.com/convert"}}}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 70, shown()["width"])
	})
}

// TestAChangedDefinitionEndsWatches of all of its versions, a second later, as on a real server.
func TestAChangedDefinitionEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v1, v1alpha1 := doors(t, byWebhook, convertDoors(nil))
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		type watched struct {
			watch.Interface
			events int
			ended  time.Time
		}
		begin := func(in dynamic.ResourceInterface) *watched {
			w, err := in.Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(s.Version(), 10)})
			require.NoError(t, err)
			seen := &watched{Interface: w}
			go func() {
				for range w.ResultChan() {
					seen.events++
				}
				seen.ended = time.Now()
			}()
			return seen
		}
		define := func(patch string) {
			_, err := client.Resource(definitions).Patch(t.Context(), "doors.corpus.example.com", types.MergePatchType,
				[]byte(patch), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		both := []*watched{begin(v1), begin(v1alpha1)}
		ofDefinitions := begin(client.Resource(definitions))
		define(`{"metadata":{"labels":{"l":"m"}}}`)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, w := range both {
			require.Zero(t, w.ended, "what is not in the spec changes nothing")
		}
		changed := time.Now()
		define(`{"spec":{"conversion":{"webhook":{"conversionReviewVersions":["v1","v1beta1"]}}}}`)
		after := begin(v1)
		_, err = v1.Create(t.Context(), door("v1", "a", map[string]any{"width": int64(70)}), metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, w := range both {
			require.Equal(t, time.Second, w.ended.Sub(changed))
			require.Equal(t, 1, w.events)
		}
		for _, w := range []*watched{after, ofDefinitions} {
			require.Zero(t, w.ended)
			w.Stop()
		}
		synctest.Wait()
	})
}

// TestDiscoveryOfVersions is about the documents, and the warning of a version that is deprecated.
func TestDiscoveryOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := doors(t, "", nil)
		get := func(path string) (string, http.Header) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://in-memory"+path, nil)
			require.NoError(t, err)
			resp, err := s.Config().Transport.RoundTrip(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return string(body), resp.Header
		}
		group, _ := get("/apis/corpus.example.com")
		require.Contains(t, group, `"preferredVersion":{"groupVersion":"corpus.example.com/v1","version":"v1"}`)
		for _, version := range []string{"v1", "v1alpha1"} {
			list, _ := get("/apis/corpus.example.com/" + version)
			require.Contains(t, list, `"name":"doors/status"`)
			require.Equal(t, version == "v1", strings.Contains(list, `"name":"doors/scale"`))
			document, _ := get("/openapi/v3/apis/corpus.example.com/" + version)
			require.Equal(t, version == "v1", strings.Contains(document, `"width"`))
		}
		_, header := get("/apis/corpus.example.com/v1alpha1/doors")
		require.Equal(t, `299 - "corpus.example.com/v1alpha1 Door is deprecated; use corpus.example.com/v1 Door"`,
			header.Get("Warning"))
		_, header = get("/apis/corpus.example.com/v1/doors")
		require.Empty(t, header.Get("Warning"))
	})
}
