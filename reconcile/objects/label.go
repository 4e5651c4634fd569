package objects

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/thermostat-go/thermostat/informer"
)

// ByLabel returns an owner whose objects have a label, such as tenants.example.com/owner, in place of an owner
// reference. The value of the label is the owner's UID, and an annotation of the same name has its namespace and name.
//
//	owner := objects.NewOwner(r.tenants, tenant, r.tenants.GroupVersionKind()).ByLabel(ownerLabel)
//
// It is for what an owner reference would harm or cannot express: a namespace that a foreground deletion of its owner
// would delete before the owner has emptied it, or objects in other namespaces than the owner's. [Claim] adopts and
// releases as ever, and no owner takes an object that has the label of another, or a controller.
//
// The garbage collector does not know the label: what has only the label stays when its owner goes. So give the owner a
// finalizer with [Finalize], and let its clean-up delete what it owns with [DeleteOwned], or with an [ApplySet] that
// wants nothing. And a name that is not given a namespace is that of a cluster-scoped object, not of one in the owner's
// namespace.
//
// [LabelledBy] brings up the owner's key when such an object changes.
func (o *Owner) ByLabel(label string) *Owner {
	labelled := *o
	labelled.label = label
	if o.mistake == nil {
		labelled.mistake = checkLabel(label)
	}
	return &labelled
}

// LabelledBy returns a function for reconcile.Watches: the key of the owner that has put the label on an object, or
// none.
//
//	reconcile.Watches(c, namespaces.Cache, objects.LabelledBy[*corev1.Namespace](ownerLabel))
func LabelledBy[T informer.Object](label string) func(T) []informer.Key {
	return func(o T) []informer.Key {
		if _, labelled := o.GetLabels()[label]; !labelled {
			return nil
		}
		namespace, name, ok := strings.Cut(o.GetAnnotations()[label], "/")
		if !ok {
			return nil
		}
		return []informer.Key{{Namespace: namespace, Name: name}}
	}
}

func checkLabel(label string) error {
	if problems := validation.IsQualifiedName(label); len(problems) > 0 {
		return fmt.Errorf("the label %q: %s", label, strings.Join(problems, "; "))
	}
	if !strings.Contains(label, "/") {
		return fmt.Errorf("the label %q has no domain in front, as in example.com/%s", label, label)
	}
	return nil
}

// with returns a copy of a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// without returns a copy of a map without an entry.
func without(m map[string]string, key string) map[string]string {
	m = maps.Clone(m)
	delete(m, key)
	return m
}
