package wiretest

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SharedLabels returns how many objects have the labels of another one: the same map. Which ones do is drawn: objects
// that are decoded at the same time do not know of each other, and two maps may displace each other from the table of
// what is known: one pair of hundreds does, by a seed that is drawn. So a test has many objects, and labels of three
// kinds, of which one is left to itself then.
func SharedLabels[T metav1.Object](objects []T) (n int) {
	seen := map[uintptr]bool{}
	for _, o := range objects {
		labels := o.GetLabels()
		if len(labels) == 0 {
			continue
		}
		at := reflect.ValueOf(labels).Pointer()
		if seen[at] {
			n++
		}
		seen[at] = true
	}
	return n
}
