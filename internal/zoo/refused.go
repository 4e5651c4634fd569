package zoo

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// refused are bugs of operators that ask the server again and again for what it will never do.
var refused = []bug{
	{
		published:  "acorn-io/runtime#178",
		class:      "refused",
		mistake:    "a job is updated when its template changes, which the server refuses for ever",
		reconciler: running,
		scenario:   runOnce(),
		heldBack:   true,
	},
}

// runOnce is a Cluster that gets a new image. The template of its Set is that of a job, and never changes.
func runOnce() reconciletest.Scenario {
	s := scenario(spec{"image": "one"}, spec{"image": "two"})
	for i, r := range s.Server.Resources {
		if r.Resource == sets {
			s.Server.Resources[i].Validate = sameTemplate
		}
	}
	s.Settled = func(s *reconciletest.Server) error {
		c, job := held(s, clusters, "a"), held(s, sets, "a")
		if job == nil || text(job, "spec", "image") != text(c, "spec", "image") {
			return fmt.Errorf("there is no set with the image %q", text(c, "spec", "image"))
		}
		return nil
	}
	return s
}

func sameTemplate(o, old *object) field.ErrorList {
	if old == nil || text(o, "spec", "image") == text(old, "spec", "image") {
		return nil
	}
	image := field.NewPath("spec", "image")
	return field.ErrorList{field.Invalid(image, text(o, "spec", "image"), "field is immutable")}
}

// running runs the image of a Cluster once, by a Set.
func running(fixed bool) reconciler {
	return func(ctx context.Context, w *world, key types.NamespacedName) error {
		c, err := w.live(ctx, clusters, key.Namespace, key.Name)
		if c == nil || err != nil {
			return err
		}
		if !fixed {
			return w.ensureSet(ctx, c, spec{"image": text(c, "spec", "image")})
		}
		job, err := w.live(ctx, sets, key.Namespace, key.Name)
		switch {
		case err != nil:
			return err
		case job == nil:
			return w.create(ctx, sets, child(c, sets, c.GetName(), spec{"image": text(c, "spec", "image")}))
		case text(job, "spec", "image") != text(c, "spec", "image"):
			return w.delete(ctx, sets, key.Namespace, job.GetName(), job.GetUID()) // an event comes when it is gone
		}
		return nil
	}
}
