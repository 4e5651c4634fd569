package reconciletest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// snapshot is what the server holds, without what may differ between two runs that end alike: each object as its lines
// of "path = value", under what it is called.
type snapshot map[string][]string

// touchedBy is the annotation of the third party.
const touchedBy = "reconciletest.thermostat-go.github.com/touched"

var (
	uidText  = regexp.MustCompile(`[0-9a-f]{8}-0000-4000-8000-[0-9a-f]{12}`)
	timeText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
)

// takeSnapshot takes one. Leases and Events are left out.
func takeSnapshot(s *Server, mask func(*unstructured.Unstructured)) snapshot {
	type held struct {
		resource string
		object   *unstructured.Unstructured
	}
	var all []held
	names := map[string]string{} // of UIDs and generated names
	var generated []string
	for _, r := range s.resources {
		switch r.GroupResource().String() {
		case "leases.coordination.k8s.io", "events", "events.events.k8s.io":
			continue
		}
		for _, o := range s.store.list(r.GroupResource(), s.Version()) {
			u := treeOf(o)
			all = append(all, held{r.GroupResource().String(), u})
			name := u.GetName()
			if prefix := u.GetGenerateName(); prefix != "" {
				name = prefix + "*"
				generated = append(generated, u.GetName(), name)
			}
			names[string(u.GetUID())] = fmt.Sprintf("<uid of %s %s/%s>", r.Resource, u.GetNamespace(), name)
		}
	}
	replace := strings.NewReplacer(generated...)
	text := func(v string) string {
		v = uidText.ReplaceAllStringFunc(v, func(uid string) string {
			if name, ok := names[uid]; ok {
				return name
			}
			return "<uid of nothing>"
		})
		return timeText.ReplaceAllString(replace.Replace(v), "<time>")
	}
	snap := snapshot{}
	for _, h := range all {
		if mask != nil {
			mask(h.object)
		}
		stripMetadata(h.object)
		var lines []string
		flatten("", h.object.Object, h.object.GetGeneration(), text, &lines)
		slices.Sort(lines)
		key := text(fmt.Sprintf("%s %s/%s", h.resource, h.object.GetNamespace(), h.object.GetName()))
		for snap[key] != nil { // several of one generated name
			key += "*"
		}
		snap[key] = lines
	}
	return snap.ordered()
}

// ordered gives the objects of one generated name their names in the order of their contents.
func (s snapshot) ordered() snapshot {
	groups := map[string][][]string{}
	for key, lines := range s {
		base := strings.TrimRight(key, "*")
		groups[base] = append(groups[base], lines)
	}
	sorted := snapshot{}
	for base, group := range groups {
		slices.SortFunc(group, slices.Compare)
		for i, lines := range group {
			key := base
			if i > 0 || s[base] == nil {
				key = fmt.Sprintf("%s(%d)", base, i+1)
			}
			sorted[key] = lines
		}
	}
	return sorted
}

// stripMetadata removes what the server makes. The generation stays, for flatten.
func stripMetadata(u *unstructured.Unstructured) {
	metadata, _ := u.Object["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		if delete(annotations, touchedBy); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
}

// flatten appends the lines of a tree.
func flatten(path string, v any, generation int64, text func(string) string, lines *[]string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			flatten(path+"."+text(key), value, generation, text, lines)
		}
		if len(v) == 0 {
			*lines = append(*lines, path+" = {}")
		}
	case []any:
		for i, value := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), value, generation, text, lines)
		}
		if len(v) == 0 {
			*lines = append(*lines, path+" = []")
		}
	case string:
		*lines = append(*lines, path+" = "+text(v))
	default:
		switch number := fmt.Sprint(v); {
		case path == ".metadata.generation":
		case strings.HasSuffix(path, ".observedGeneration") && number == fmt.Sprint(generation):
			*lines = append(*lines, path+" = <current>")
		case strings.HasSuffix(path, ".observedGeneration"):
			*lines = append(*lines, path+" = <not current>")
		default:
			data, err := json.Marshal(v)
			if err != nil {
				data = []byte(number)
			}
			*lines = append(*lines, path+" = "+string(data))
		}
	}
}

// differences says where a snapshot is not what it should be.
func (s snapshot) differences(want snapshot) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if want[key] == nil {
			all = append(all, key+" should not be there")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		got, ok := s[key]
		if !ok {
			all = append(all, key+" is missing")
			continue
		}
		for _, line := range got {
			if !slices.Contains(want[key], line) {
				all = append(all, fmt.Sprintf("%s: has %s", key, line))
			}
		}
		for _, line := range want[key] {
			if !slices.Contains(got, line) {
				all = append(all, fmt.Sprintf("%s: should have %s", key, line))
			}
		}
	}
	return all
}
