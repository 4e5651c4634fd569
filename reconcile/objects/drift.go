package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/thermostat-go/thermostat/informer"
)

// Difference is a field whose value is not the desired one.
type Difference struct {
	Field string // such as .spec.template.spec.containers[name="web"].image
	// Desired and Is are values as JSON decodes them, integers as int64; nil: the field is not there.
	Desired, Is any
	// Managers have set the field to what it is, as the object's managedFields say. Empty: no manager did, so the
	// server has filled it in, or the field is not there.
	Managers []string
}

// String names the field and its managers, and no value: the object may be a Secret.
func (d Difference) String() string { return d.Field + " " + d.Cause() }

// Cause says how the field came to differ, such as "was set by kubectl".
func (d Difference) Cause() string {
	switch {
	case d.Is == nil:
		return "is missing"
	case len(d.Managers) == 0:
		return "has no manager"
	}
	return "was set by " + strings.Join(d.Managers, " and ")
}

// Drift compares an object with the configuration that a manager applies to it: it returns the fields that [Apply] with
// opts.Force would change, in the order of their names. It sends a GET and a server-side apply with dryRun=All, which
// writes nothing, and needs the right to patch. If the object does not exist, every field of it is missing.
//
//	maps := clientset.CoreV1().ConfigMaps(namespace)
//	differences, err := objects.Drift(ctx, maps, maps.Apply, config,
//		metav1.ApplyOptions{FieldManager: "gadget-controller"})
//
// Fields that the configuration does not set are not compared, unless the manager has applied them before: Apply
// removes these.
func Drift[A, C any, T informer.Object](ctx context.Context, client Getter[T],
	apply func(context.Context, A, metav1.ApplyOptions) (T, error), config C,
	opts metav1.ApplyOptions) ([]Difference, error) {
	opts.Force, opts.DryRun = true, []string{metav1.DryRunAll}
	name, err := nameIn(config)
	if err != nil {
		return nil, err
	}
	const attempts = 5
	for range attempts {
		is, version, err := treeOf(client.Get(ctx, name, metav1.GetOptions{}))
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read %s: %w", nameOf(config), err)
		}
		desired, basis, err := treeOf(Apply(ctx, apply, config, opts))
		if err != nil {
			return nil, err
		}
		// A dry run answers with the version of the object that it was made on, and with none for a new object.
		if is != nil && basis != version {
			continue
		}
		var found []Difference
		compare(&found, "", desired, anyOf(is), managersOf(is))
		return found, nil
	}
	return nil, fmt.Errorf("compare %s: the object changed %d times while it was read", nameOf(config), attempts)
}

// nameIn returns the name in an apply configuration of any type.
func nameIn(config any) (string, error) {
	var named struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	data, err := json.Marshal(config)
	if err == nil {
		err = json.Unmarshal(data, &named)
	}
	if err == nil && named.Metadata.Name == "" {
		err = errors.New("metadata.name is empty")
	}
	if err != nil {
		return "", fmt.Errorf("Drift: the configuration: %w", err)
	}
	return named.Metadata.Name, nil
}

// treeOf turns the answer to a request into a tree of JSON without what the server sets with every write. The fields
// that managedFields list stay.
func treeOf[T informer.Object](o T, failed error) (tree map[string]any, version string, err error) {
	if failed != nil {
		return nil, "", failed
	}
	data, err := json.Marshal(o)
	if err == nil {
		err = utiljson.Unmarshal(data, &tree) // keeps integers
	}
	if err != nil {
		return nil, "", err
	}
	if metadata, ok := tree["metadata"].(map[string]any); ok {
		for _, name := range []string{"resourceVersion", "generation", "creationTimestamp", "uid"} {
			delete(metadata, name)
		}
	}
	return tree, o.GetResourceVersion(), nil
}

// anyOf returns a tree, or nil without a type.
func anyOf(tree map[string]any) any {
	if tree == nil {
		return nil
	}
	return tree
}

// compare walks through two values at once, of which one may be missing, and appends the fields that differ.
func compare(found *[]Difference, path string, desired, is any, managers []manager) {
	switch {
	case path == ".metadata.managedFields", reflect.DeepEqual(desired, is):
		return
	case holds[map[string]any](desired, is):
		left, _ := desired.(map[string]any)
		right, _ := is.(map[string]any)
		names := maps.Clone(left)
		if names == nil {
			names = map[string]any{}
		}
		maps.Copy(names, right)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			compare(found, path+"."+name, left[name], right[name], into(managers, func(key string) bool {
				return key == "f:"+name
			}))
		}
	case holds[[]any](desired, is):
		left, _ := desired.([]any)
		right, _ := is.([]any)
		compareLists(found, path, left, right, managers)
	default:
		*found = append(*found, Difference{Field: path, Desired: desired, Is: is, Managers: namesOf(managers, is)})
	}
}

// holds reports whether both values are a V that is not empty, or one is and the other is missing.
func holds[V map[string]any | []any](a, b any) bool {
	one := func(v any) (there, fits bool) {
		if v == nil {
			return false, true
		}
		c, ok := v.(V)
		return true, ok && reflect.ValueOf(c).Len() > 0
	}
	thereA, fitsA := one(a)
	thereB, fitsB := one(b)
	return (thereA || thereB) && fitsA && fitsB
}

// listKeys are the fields that tell the elements of a list apart, in the lists of Kubernetes' own kinds.
var listKeys = []string{"name", "type", "uid", "key", "containerPort", "mountPath", "ip", "port"}

// compareLists compares elements that have the same key or, in a list without keys, the same position.
func compareLists(found *[]Difference, path string, left, right []any, managers []manager) {
	for _, key := range listKeys {
		a, okA := keyed(left, key)
		b, okB := keyed(right, key)
		if !okA || !okB {
			continue
		}
		all := maps.Clone(a)
		maps.Copy(all, b)
		for _, value := range slices.Sorted(maps.Keys(all)) {
			compare(found, fmt.Sprintf("%s[%s=%s]", path, key, value), a[value], b[value],
				into(managers, matches(all[value])))
		}
		return
	}
	at := func(list []any, i int) any {
		if i < len(list) {
			return list[i]
		}
		return nil
	}
	for i := range max(len(left), len(right)) {
		compare(found, fmt.Sprintf("%s[%d]", path, i), at(left, i), at(right, i), into(managers, matches(at(right, i))))
	}
}

// keyed returns the elements of a list by the JSON of a field, if each has the field and no two have the same value.
func keyed(list []any, key string) (map[string]any, bool) {
	elements := map[string]any{}
	for _, element := range list {
		fields, _ := element.(map[string]any)
		if fields[key] == nil {
			return nil, false
		}
		value, err := json.Marshal(fields[key])
		if err != nil || elements[string(value)] != nil {
			return nil, false
		}
		elements[string(value)] = element
	}
	return elements, true
}

// manager is a field manager, with the part of its fieldsV1 that belongs to the value under comparison. whole says that
// it manages the value as one.
type manager struct {
	name   string
	fields map[string]any
	whole  bool
}

// managersOf reads the managedFields of an object.
func managersOf(tree map[string]any) (managers []manager) {
	metadata, _ := tree["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		e, _ := entry.(map[string]any)
		name, _ := e["manager"].(string)
		if fields, ok := e["fieldsV1"].(map[string]any); ok {
			managers = append(managers, manager{name: name, fields: fields})
		}
	}
	return managers
}

// into goes one step down to the fields whose key in fieldsV1 is chosen: "f:" and a name, "k:" and the keys of an
// element of a list, or "v:" and the element. A manager of a whole map or list manages all that is in it.
func into(managers []manager, chosen func(key string) bool) (down []manager) {
	for _, m := range managers {
		if m.whole {
			down = append(down, m)
			continue
		}
		for key, fields := range m.fields {
			if !chosen(key) {
				continue
			}
			below, _ := fields.(map[string]any)
			down = append(down, manager{m.name, below, len(below) == 0})
		}
	}
	return down
}

// matches chooses the keys of an element of a list.
func matches(element any) func(key string) bool {
	return func(key string) bool {
		kind, text, _ := strings.Cut(key, ":")
		var value any
		if utiljson.Unmarshal([]byte(text), &value) != nil {
			return false
		}
		switch kind {
		case "v":
			return reflect.DeepEqual(value, element)
		case "k":
			fields, _ := element.(map[string]any)
			keys, _ := value.(map[string]any)
			for name, v := range keys {
				if !reflect.DeepEqual(fields[name], v) {
					return false
				}
			}
			return true
		}
		return false
	}
}

// namesOf returns the names of the managers of a value, each once.
func namesOf(managers []manager, is any) (names []string) {
	if is == nil {
		return nil
	}
	for _, m := range managers {
		names = append(names, m.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
