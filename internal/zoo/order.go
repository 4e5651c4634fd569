package zoo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// order are bugs of operators that work only if what an object refers to was there before it.
var order = []bug{
	{
		published:  "kcp-dev/kcp#3925",
		class:      "order",
		mistake:    "an endpoint slice whose export comes later keeps no URL, since nothing looks at it again",
		reconciler: exporting,
		scenario:   exported(),
		heldBack:   true,
	},
}

// exported is a Cluster, the slice, that refers to a Set, the export, and then to another one.
func exported() reconciletest.Scenario {
	export := func(name string) string {
		data, err := json.Marshal(map[string]any{"apiVersion": group.String(), "kind": "Set",
			"metadata": map[string]any{"name": name, "namespace": "default"},
			"spec":     spec{"url": "https://" + name + ".example.com"}})
		if err != nil {
			panic(err)
		}
		return string(data) + "\n---\n"
	}
	s := scenario()
	s.Steps = reconciletest.ApplyYAML(export("x")+cluster(spec{"export": "x"}),
		export("y")+cluster(spec{"export": "y"}))
	s.Settled = func(s *reconciletest.Server) error {
		c := held(s, clusters, "a")
		url, export := text(c, "status", "url"), text(c, "spec", "export")
		if of := held(s, sets, export); of == nil || text(of, "spec", "url") != url {
			return fmt.Errorf("the URL is %q, and the export is %q", url, export)
		}
		return nil
	}
	return s
}

// exporting writes the URL of the export that a Cluster names into its status. An export belongs to no Cluster: the
// name in the key is empty then.
func exporting(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		if key.Name != "" {
			c, err := w.live(ctx, clusters, key.Namespace, key.Name)
			if c == nil || err != nil {
				return err
			}
			return w.writeURL(ctx, c)
		}
		if !fixed {
			return nil
		}
		list, err := w.client.Resource(resource(clusters)).Namespace(key.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var failed error
		for i := range list.Items {
			failed = errors.Join(failed, w.writeURL(ctx, &list.Items[i]))
		}
		return failed
	}
}

// writeURL writes the URL of its export into the status of a Cluster: none if there is no export.
func (w *world) writeURL(ctx context.Context, c *object) error {
	of, err := w.live(ctx, sets, c.GetNamespace(), text(c, "spec", "export"))
	if err != nil {
		return err
	}
	url := ""
	if of != nil {
		url = text(of, "spec", "url")
	}
	if text(c, "status", "url") == url {
		return nil
	}
	set(c, map[string]any{"url": url}, "status")
	return w.updateStatus(ctx, clusters, c)
}
