package reconciletest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// hashNames returns what stands for the hashes that the names of ReplicaSets and ControllerRevisions end in. Such a
// hash is one of the content and of a count: a controller that meets the object of a namesake counts a collision, and
// so finds another name for the same content. What stands for the hash depends on the content alone, as far as
// snapshots compare it.
func hashNames(all []kept, mask func(*unstructured.Unstructured)) map[string]string {
	names := map[string]string{}
	for _, h := range all {
		if hash := hashInName(h.object); hash != "" {
			content := h.object.DeepCopy()
			mask(content)
			names[hash] = "<hash of " + digestOf(content, hash) + ">"
		}
	}
	return names
}

// shortestHash is how long a hash in a name is at least. Shorter texts may be anywhere.
const shortestHash = 6

// hashInName returns the hash that the name of an object ends in, as a label of it says; empty: there is none.
func hashInName(u *unstructured.Unstructured) string {
	kind := u.GroupVersionKind()
	if kind.Group != appsv1.GroupName || kind.Kind != "ReplicaSet" && kind.Kind != "ControllerRevision" {
		return ""
	}
	labels := u.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasSuffix(key, "hash") && len(labels[key]) >= shortestHash &&
			strings.HasSuffix(u.GetName(), "-"+labels[key]) {
			return labels[key]
		}
	}
	return ""
}

// digestOf returns a short text that two objects share if they have the same content, but for UIDs, addresses and
// times.
func digestOf(u *unstructured.Unstructured, hash string) string {
	template, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template")
	text, err := json.Marshal([]any{template, u.Object["data"]})
	if err != nil {
		panic(err) // the server has read it from JSON
	}
	for name, what := range map[string]*regexp.Regexp{"<uid>": uidText, "<ip>": worldIP, "<time>": timeText} {
		text = what.ReplaceAll(text, []byte(name))
	}
	sum := sha256.Sum256([]byte(strings.ReplaceAll(string(text), hash, "")))
	return fmt.Sprintf("%x", sum[:4])
}
