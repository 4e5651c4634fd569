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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// The names of ReplicaSets and ControllerRevisions end in a hash of their content and of a count: a controller that
// meets the object of a namesake counts a collision, and so finds another name for the same content. In a snapshot the
// hash is one of the content alone, as far as that is compared. The own name of such an object is a field of it, and so
// is the count of its controller. Both say mayDiffer where they may: where a controller has the name of an earlier
// object, and of a name also where the content has what is not compared, such as a time.

// mayDiffer is the value of a field that is not compared with that of another run, whatever that one has.
const mayDiffer = "<may differ>"

// ownName returns what the snapshot of an object says of its name; empty: it does not end in a hash.
func ownName(u *unstructured.Unstructured, namesakes map[types.UID]bool, mask func(*unstructured.Unstructured)) string {
	hash := hashInName(u)
	if hash == "" {
		return ""
	}
	content := u.DeepCopy()
	mask(content)
	owner := metav1.GetControllerOfNoCopy(u)
	if owner != nil && namesakes[owner.UID] || string(hashedOf(u)) != string(comparedOf(content)) {
		return mayDiffer
	}
	return u.GetName()
}

// hashNames returns what stands for the hashes that names end in.
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

// digestOf returns a short text that two objects share if they have the same content, as far as that is compared.
func digestOf(u *unstructured.Unstructured, hash string) string {
	sum := sha256.Sum256([]byte(strings.ReplaceAll(string(comparedOf(u)), hash, "")))
	return fmt.Sprintf("%x", sum[:4])
}

// hashedOf returns what the hash in the name of an object is one of.
func hashedOf(u *unstructured.Unstructured) []byte {
	template, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template")
	text, err := json.Marshal([]any{template, u.Object["data"]})
	if err != nil {
		panic(err) // the server has read it from JSON
	}
	return text
}

// comparedOf is hashedOf, but for UIDs, addresses and times.
func comparedOf(u *unstructured.Unstructured) []byte {
	text := hashedOf(u)
	for name, what := range map[string]*regexp.Regexp{"<uid>": uidText, "<ip>": worldIP, "<time>": timeText} {
		text = what.ReplaceAll(text, []byte(name))
	}
	return text
}
