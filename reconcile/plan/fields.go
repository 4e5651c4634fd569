package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Field is a field in which an object differs from what it was. Old is nil if there was none, New if there is none any
// more; both are if Hidden is set.
type Field struct {
	// Path is as in spec.template.spec.containers[web].image. An element of a list is named by its name, type or
	// another key, if all elements have one, and by its index otherwise.
	Path string `json:"path"`
	Old  any    `json:"old,omitempty"`
	New  any    `json:"new,omitempty"`
	// Hidden: the values are not shown, since they may be those of a Secret. The path is then that of the whole of
	// them, such as data.
	Hidden bool `json:"hidden,omitempty"`
	// Invented: the value is, or has in it, one that the fork has drawn, such as an address or a UID. The cluster will
	// draw another one.
	Invented bool `json:"invented,omitempty"`
}

// notCompared are the fields of the metadata that a server sets with every write, and those that name the object.
var notCompared = []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation",
	"managedFields", "selfLink"}

// changed returns the fields in which two states of an object differ, in the order of their paths. One of them may be
// nil.
func changed(old, now reconciletest.Object) ([]Field, error) {
	was, err := treeOf(old)
	if err != nil {
		return nil, err
	}
	is, err := treeOf(now)
	if err != nil {
		return nil, err
	}
	secret := false
	for _, o := range []reconciletest.Object{old, now} {
		secret = secret || o != nil && isSecret(o)
	}
	hideEmbedded(was)
	hideEmbedded(is)
	var found []Field
	compare(&found, "", was, is)
	if old == nil || now == nil { // what is there, and says nothing
		found = slices.DeleteFunc(found, func(f Field) bool { return isBare(f.Old) && isBare(f.New) })
	}
	var shown []Field
	for _, f := range found {
		if whole, hidden := hides(secret, f.Path); hidden {
			f = Field{Path: whole, Hidden: true}
		}
		if !slices.ContainsFunc(shown, func(s Field) bool { return s.Hidden && s.Path == f.Path }) {
			shown = append(shown, f)
		}
	}
	return shown, nil
}

// hideEmbedded hides the values of Secrets that stand in other objects, such as those that bring manifests to clusters.
func hideEmbedded(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["kind"] == "Secret" {
			for _, name := range []string{"data", "stringData"} {
				if _, ok := v[name]; ok {
					v[name] = "(not shown)"
				}
			}
		}
		for _, below := range v {
			hideEmbedded(below)
		}
	case []any:
		for _, below := range v {
			hideEmbedded(below)
		}
	}
}

func isBare(v any) bool {
	m, ok := v.(map[string]any)
	return v == nil || ok && len(m) == 0
}

// isSecret reports whether an object is one whose values are shown to nobody.
func isSecret(o reconciletest.Object) bool {
	_, typed := o.(*corev1.Secret)
	return typed || o.GetObjectKind().GroupVersionKind().Kind == "Secret"
}

// harmless are the fields of a Secret whose values are shown. All others are hidden, those included that nobody knows.
var harmless = []string{"type", "immutable", "metadata.labels", "metadata.finalizers", "metadata.ownerReferences",
	"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.name", "metadata.namespace",
	"metadata.generateName"}

// hides reports whether the value at a path is not shown, and what is named in its place.
func hides(secret bool, path string) (whole string, hidden bool) {
	if strings.HasPrefix(path, "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]") {
		return path, true
	}
	below := func(root string) bool {
		rest, ok := strings.CutPrefix(path, root)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	if !secret || slices.ContainsFunc(harmless, below) {
		return "", false
	}
	if below("metadata.annotations") {
		return "metadata.annotations", true
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, true
	}
	return path[:end], true
}

// treeOf returns an object as JSON has it, without what is not compared.
func treeOf(o reconciletest.Object) (map[string]any, error) {
	if o == nil || reflect.ValueOf(o).IsNil() {
		return nil, nil
	}
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	tree := map[string]any{}
	if err := utiljson.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	delete(tree, "kind")
	delete(tree, "apiVersion")
	if metadata, ok := tree["metadata"].(map[string]any); ok {
		for _, name := range notCompared {
			delete(metadata, name)
		}
	}
	return tree, nil
}

// compare adds the differences below a path. An empty list is taken for one that is not there. A map without entries is
// not: affinity: {} is another pod template than one without it.
func compare(found *[]Field, path string, old, now any) {
	if reflect.DeepEqual(old, now) || len(sliceOf(old))+len(sliceOf(now)) == 0 && isList(old) && isList(now) {
		return
	}
	was, wasMap := mapOf(old)
	is, isMap := mapOf(now)
	if wasMap && isMap && len(was)+len(is) > 0 {
		names := slices.Sorted(maps.Keys(is))
		for name := range was {
			if _, both := is[name]; !both {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			if (old == nil || now == nil) && isBare(was[name]) && isBare(is[name]) {
				continue // it comes with what it is a part of
			}
			compare(found, join(path, name), was[name], is[name])
		}
		return
	}
	if left, right, ok := elements(old, now); ok {
		for _, key := range slices.Sorted(maps.Keys(union(left, right))) {
			compare(found, path+"["+key+"]", left[key], right[key])
		}
		if len(*found) == 0 || !strings.HasPrefix((*found)[len(*found)-1].Path, path+"[") { // nothing but their order
			*found = append(*found, Field{Path: path, Old: old, New: now})
		}
		return
	}
	left, right := sliceOf(old), sliceOf(now)
	if len(left) == 0 || len(left) != len(right) {
		*found = append(*found, Field{Path: path, Old: old, New: now})
		return
	}
	for i := range left {
		compare(found, fmt.Sprintf("%s[%d]", path, i), left[i], right[i])
	}
}

func sliceOf(v any) []any {
	l, _ := v.([]any)
	return l
}

// mapOf returns a map, an empty one for nil.
func mapOf(v any) (map[string]any, bool) {
	if v == nil {
		return nil, true
	}
	m, ok := v.(map[string]any)
	return m, ok
}

// elements returns the elements of two lists by what tells them apart. A list that is not there has none.
func elements(old, now any) (left, right map[string]any, ok bool) {
	was, wasList := old.([]any)
	is, isList := now.([]any)
	if !wasList && old != nil || !isList && now != nil {
		return nil, nil, false
	}
	for _, key := range []string{"name", "type", "mountPath", "containerPort", "port", "uid", "key", "ip"} {
		left, lok := keyed(was, key)
		right, rok := keyed(is, key)
		if lok && rok && len(left)+len(right) > 0 {
			return left, right, true
		}
	}
	return nil, nil, false
}

// keyed returns the elements of a list by the value of a key; false if they cannot be told apart by it.
func keyed(list []any, key string) (map[string]any, bool) {
	all := make(map[string]any, len(list))
	for _, element := range list {
		m, ok := element.(map[string]any)
		if !ok {
			return nil, false
		}
		value, ok := m[key]
		name := fmt.Sprint(value)
		if _, twice := all[name]; !ok || twice {
			return nil, false
		}
		all[name] = element
	}
	return all, true
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// isList reports whether a value is a list. One that is not there is an empty one.
func isList(v any) bool {
	_, ok := v.([]any)
	return ok || v == nil
}

// join appends the name of a field to a path. A name that is data, such as that of a label, stands in brackets.
func join(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.ContainsAny(name, "./[]"), strings.HasSuffix(path, ".annotations"), strings.HasSuffix(path, ".labels"),
		strings.HasSuffix(path, ".matchLabels"), strings.HasSuffix(path, ".nodeSelector"), path == "data":
		return path + "[" + name + "]"
	}
	return path + "." + name
}
