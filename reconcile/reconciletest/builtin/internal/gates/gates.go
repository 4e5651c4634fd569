// Package gates keeps client-go's feature gates, which the code of Kubernetes replaces by its own when it is linked: a
// program under test has those that it has without, which read the environment (KUBE_FEATURE_*).
//
// It imports nothing of Kubernetes but the gates, and so is initialized before the package that replaces them: of those
// whose imports are initialized, the one with the least import path is next.
package gates

import (
	"reflect"

	clientfeatures "k8s.io/client-go/features"
)

var before = clientfeatures.FeatureGates()

// Restore puts the gates back, unless somebody else than Kubernetes has replaced them.
func Restore() {
	if reflect.TypeOf(clientfeatures.FeatureGates()).Elem().PkgPath() == "k8s.io/kubernetes/pkg/features" {
		clientfeatures.ReplaceFeatureGates(before)
	}
}
