package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// state are the objects of a cluster or of a fork, by what names them.
type state map[object]*unstructured.Unstructured

// object names one. A name that the server has drawn is the prefix of it and a number.
type object struct{ resource, namespace, name string }

func (o object) String() string {
	if o.namespace == "" {
		return o.resource + " " + o.name
	}
	return o.resource + " " + o.namespace + "/" + o.name
}

// restless are the resources that change by themselves, or that say what the program does rather than do something.
var restless = map[string]bool{"leases.coordination.k8s.io": true, "events": true, "events.events.k8s.io": true,
	"nodes": true, "componentstatuses": true, "apiservices.apiregistration.k8s.io": true}

// resources are those that can be listed, in the preferred version of each group.
func resources(cfg *rest.Config) ([]schema.GroupVersionResource, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	groups, err := d.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var all []schema.GroupVersionResource
	for _, g := range groups {
		gv, err := schema.ParseGroupVersion(g.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range g.APIResources {
			gvr := gv.WithResource(r.Name)
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") &&
				!restless[gvr.GroupResource().String()] {
				all = append(all, gvr)
			}
		}
	}
	return all, nil
}

// read returns what there is. A fork that serves a kind in another version is asked for what it can give.
func read(ctx context.Context, cfg *rest.Config, all []schema.GroupVersionResource) (state, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{} // of kinds that are out of date
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	s := state{}
	for _, gvr := range all {
		list, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || err != nil && strings.Contains(err.Error(), "in two versions") {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", gvr, err)
		}
		slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
			return strings.Compare(a.GetName(), b.GetName())
		})
		drawn := map[string]int{}
		for i := range list.Items {
			o := &list.Items[i]
			name := o.GetName()
			if prefix := o.GetGenerateName(); prefix != "" {
				drawn[prefix]++
				name = fmt.Sprintf("%s*%d", prefix, drawn[prefix])
			}
			s[object{gvr.GroupResource().String(), o.GetNamespace(), name}] = o
		}
	}
	return s, nil
}

// versions tell one state from the next.
func (s state) versions() map[object]string {
	all := map[object]string{}
	for name, o := range s {
		all[name] = string(o.GetUID()) + " " + o.GetResourceVersion()
	}
	return all
}

// rest waits until nothing has changed for a time, and returns the state.
func atRest(ctx context.Context, cfg *rest.Config, quiet, limit time.Duration) (state, error) {
	var last map[object]string
	since, deadline := time.Now(), time.Now().Add(limit)
	for {
		all, err := resources(cfg)
		if err != nil {
			return nil, err
		}
		s, err := read(ctx, cfg, all)
		if err != nil {
			return nil, err
		}
		is := s.versions()
		if !maps.Equal(is, last) {
			last, since = is, time.Now()
		}
		if time.Since(since) >= quiet {
			return s, nil
		}
		if time.Now().After(deadline) {
			return s, fmt.Errorf("the cluster is not at rest after %v", limit)
		}
		time.Sleep(time.Second)
	}
}

var (
	moments   = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"`)
	uids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	addresses = regexp.MustCompile(`"(10\.96|192\.0\.2|10\.0|10\.244|127\.0)\.[\d.]+"`)
)

// comparable returns the fields of an object that two runs have in common: part is status, or empty for the rest.
func comparable(o *unstructured.Unstructured, part string) (map[string]string, error) {
	if o == nil {
		return nil, nil
	}
	data, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	data = moments.ReplaceAll(data, []byte(`"(a time)"`))
	data = uids.ReplaceAll(data, []byte("(a UID)"))
	data = addresses.ReplaceAll(data, []byte(`"(an address)"`))
	tree := map[string]any{}
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	for _, name := range []string{"uid", "resourceVersion", "generation", "managedFields", "name"} {
		unstructured.RemoveNestedField(tree, "metadata", name)
	}
	status := map[string]any{"status": tree["status"]}
	delete(tree, "status")
	if part == "status" {
		tree = status
	}
	fields := map[string]string{}
	flatten(fields, "", tree)
	return fields, nil
}

func flatten(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			flatten(into, path+"."+name, below)
		}
	case []any:
		for i, below := range v {
			flatten(into, fmt.Sprintf("%s[%d]", path, i), below)
		}
	case nil:
	default:
		into[path] = fmt.Sprint(v)
	}
}

// differences are the paths in which two objects differ.
func differences(a, b *unstructured.Unstructured, part string) ([]string, error) {
	left, err := comparable(a, part)
	if err != nil {
		return nil, err
	}
	right, err := comparable(b, part)
	if err != nil {
		return nil, err
	}
	var all []string
	for path := range merged(left, right) {
		is, ok := left[path]
		other, ok2 := right[path]
		if is != other || ok != ok2 {
			all = append(all, fmt.Sprintf("%s: %q, %q", strings.TrimPrefix(path, "."), is, other))
		}
	}
	slices.Sort(all)
	return all, nil
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}
