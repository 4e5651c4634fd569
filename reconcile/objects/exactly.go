package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Exactly removes from maps and lists of an object what others have added to them: the entries of the fields that
// config does not have. An apply, with or without Force, leaves these alone. Call it with what [ApplyOwned] or [Apply]
// has returned:
//
//	quota, err := objects.ApplyOwned(ctx, owner, quotas.In(namespace), seen, config, lastWord, nil)
//	if err == nil {
//		quota, err = objects.Exactly(ctx, quotas.In(namespace), quota, config, ".spec.hard")
//	}
//
// A field is written as in a [Difference], without the elements of lists. Only its own entries are compared, by their
// keys; what is in an entry is not. An element of a list is compared by the fields that config sets in it. If an
// element of config is not in the list as it was configured, or may be one of several, Exactly cannot tell which ones
// are others', and returns an error without removing any: so write values as the server does, "1" and not "1000m". The
// mark of [Owner.ByLabel] stays.
//
// It sends a JSON patch, which holds only for the version of the object that was seen: if it has changed, the error is
// 422 Invalid; retry later. If nothing is to be removed it sends nothing, and returns o.
//
// Take care with fields in which other controllers keep what they need: sidecars in a list of containers, annotations.
// What an admission plugin adds with each write comes back with each write.
func Exactly[T informer.Object](ctx context.Context, client Patcher[T], o T, config any, fields ...string) (T, error) {
	var none T
	switch {
	case client == nil:
		return none, errors.New("Exactly: the client is nil")
	case kube.IsNil(o):
		return none, errors.New("Exactly: the object is nil")
	case kube.IsNil(config):
		return none, errors.New("Exactly: the configuration is nil")
	case o.GetUID() == "":
		return none, fmt.Errorf("Exactly: %w", errNotRead(informer.KeyOf(o).String(), "UID"))
	}
	var want map[string]any
	data, err := json.Marshal(config)
	if err == nil {
		err = utiljson.Unmarshal(data, &want)
	}
	if err != nil {
		return none, fmt.Errorf("Exactly: the configuration: %w", err)
	}
	return exactly(ctx, client, o, want, fields)
}

func exactly[T informer.Object](ctx context.Context, client Patcher[T], o T, want map[string]any,
	fields []string) (T, error) {
	var none T
	key := informer.KeyOf(o)
	is, version, err := treeOf(o, nil)
	if err != nil {
		return none, fmt.Errorf("Exactly: %w", err)
	}
	var removals []operation
	for _, field := range fields {
		path, err := pathOf(field)
		if err != nil {
			return none, fmt.Errorf("Exactly: %w", err)
		}
		extra, err := extraIn(valueAt(want, path), valueAt(is, path))
		if err != nil {
			return none, fmt.Errorf("Exactly: %s of %s %w", field, key, err)
		}
		for _, entry := range extra {
			if isMark(o, path, entry) {
				continue
			}
			removals = append(removals, operation{Op: "remove", Path: pointerTo(append(slices.Clip(path), entry))})
		}
	}
	if len(removals) == 0 || o.GetDeletionTimestamp() != nil {
		return o, nil
	}
	now, err := sendPatch(ctx, client, o.GetName(), append([]operation{{"test", "/metadata/uid", o.GetUID()},
		{"test", "/metadata/resourceVersion", version}}, removals...))
	if err != nil {
		return none, fmt.Errorf("remove what others have added to %s: %w", key, err)
	}
	return now, nil
}

// isMark reports whether an entry is that of an owner by label, which has a label and an annotation of one name.
// Without it the object would be nobody's.
func isMark(o metav1.Object, path []string, entry string) bool {
	_, labelled := o.GetLabels()[entry]
	_, annotated := o.GetAnnotations()[entry]
	return path[0] == "metadata" && labelled && annotated
}

// pathOf splits a field such as .spec.hard. Of the metadata only labels and annotations are anybody's to remove.
func pathOf(field string) ([]string, error) {
	path := strings.Split(field, ".")
	switch {
	case len(path) < 2 || path[0] != "" || slices.Contains(path[1:], ""):
		return nil, fmt.Errorf("the field %q is not a path such as .spec.hard", field)
	case path[1] == "metadata" && field != ".metadata.labels" && field != ".metadata.annotations":
		return nil, fmt.Errorf("the field %s: of the metadata only labels and annotations can be made exact", field)
	}
	return path[1:], nil
}

// pointerTo is a JSON pointer, RFC 6901.
func pointerTo(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + escape.Replace(name))
	}
	return b.String()
}

func valueAt(tree any, path []string) any {
	for _, name := range path {
		fields, _ := tree.(map[string]any)
		tree = fields[name]
	}
	return tree
}

// extraIn returns the names of the entries that a map has too many, or the positions of elements of a list, last first:
// so each is still right when those before it have been removed.
func extraIn(want, is any) (extra []string, err error) {
	switch is := is.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		wanted, ok := want.(map[string]any)
		if !ok && want != nil {
			return nil, fmt.Errorf("is a map, and the configuration has a %T", want)
		}
		for name := range is {
			if _, ok := wanted[name]; !ok {
				extra = append(extra, name)
			}
		}
		slices.Sort(extra)
		return extra, nil
	case []any:
		wanted, ok := want.([]any)
		if !ok && want != nil {
			return nil, fmt.Errorf("is a list, and the configuration has a %T", want)
		}
		ours, err := matched(is, wanted)
		if err != nil {
			return nil, err
		}
		for i := len(is) - 1; i >= 0; i-- {
			if !ours[i] {
				extra = append(extra, fmt.Sprint(i))
			}
		}
		return extra, nil
	}
	return nil, fmt.Errorf("is neither a map nor a list")
}

// matched finds the element of a list for each one that is configured.
func matched(is, wanted []any) (ours []bool, err error) {
	ours = make([]bool, len(is))
	claim := func(element any, fits func(a, b any) bool) (candidates int) {
		first := -1
		for i, e := range is {
			if !ours[i] && fits(e, element) {
				candidates++
				if first < 0 {
					first = i
				}
			}
		}
		if first >= 0 {
			ours[first] = true
		}
		return candidates
	}
	var rest []int // of those that have defaults besides
	for n, element := range wanted {
		if claim(element, reflect.DeepEqual) == 0 {
			rest = append(rest, n)
		}
	}
	for i, n := range rest {
		switch candidates := claim(wanted[n], includes); {
		case candidates == 0:
			return nil, fmt.Errorf("does not have element %d of the configuration as it is there: apply it first", n)
		case candidates > len(rest)-i && len(is) != len(wanted):
			return nil, fmt.Errorf("has more than one element that may be element %d of the configuration", n)
		}
	}
	return ours, nil
}

// includes reports whether a value has all that is configured.
func includes(is, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := is.(map[string]any)
		for name, value := range want {
			if field, there := fields[name]; !there || !includes(field, value) {
				return false
			}
		}
		return ok
	case []any:
		elements, ok := is.([]any)
		for _, value := range want {
			if !slices.ContainsFunc(elements, func(e any) bool { return includes(e, value) }) {
				return false
			}
		}
		return ok
	}
	return reflect.DeepEqual(is, want)
}
