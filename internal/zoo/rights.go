package zoo

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// rights are bugs of operators that are tested as an administrator.
var rights = []bug{
	{
		published:  "etcd-io/etcd-operator#391",
		class:      "rights",
		mistake:    "the role does not allow Events, and nobody notices, since a refused Event is no error",
		reconciler: recording,
		scenario:   underRoles(),
	},
}

func underRoles() reconciletest.Scenario {
	s := scenario(spec{"replicas": 1})
	s.Server.Roles = []string{"testdata/role.yaml"}
	s.User = reconciletest.ServiceAccount("default", "zoo")
	s.Settled = func(s *reconciletest.Server) error {
		if len(all(s, sets)) != 1 {
			return errors.New("the set is missing")
		}
		return nil
	}
	return s
}

// recording makes the Set, and records an Event, whose failure it does not look at.
func recording(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil || w.get(sets, key.Namespace, key.Name) != nil {
			return err
		}
		if err := w.ensureSet(ctx, c, spec{"count": int64(1)}); err != nil || fixed {
			return err
		}
		event := &object{Object: map[string]any{"apiVersion": "v1", "kind": "Event", "reason": "SetMade",
			"message": "the set was made", "type": "Normal", "involvedObject": map[string]any{
				"apiVersion": c.GetAPIVersion(), "kind": c.GetKind(), "namespace": c.GetNamespace(),
				"name": c.GetName(),
				"uid":  string(c.GetUID())}}}
		event.SetGenerateName(c.GetName() + "-")
		_, _ = w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).
			Namespace(key.Namespace).Create(ctx, event, metav1.CreateOptions{})
		return nil
	}
}
