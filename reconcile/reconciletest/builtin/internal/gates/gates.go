// Package gates keeps the feature gates of a program as they are, although the code of Kubernetes brings its own when
// it is linked.
//
//   - client-go's are replaced by those of Kubernetes: a program under test has those that it has without, which
//     read the environment (KUBE_FEATURE_*).
//   - A gate of apiserver that a program registers, as CSI sidecars do, may have the name of one of Kubernetes' own.
//     The first one stays, and the second is passed over, where both would panic.
//
// It imports nothing of Kubernetes but the gates, and so is initialized before the package that replaces them: of those
// whose imports are initialized, the one with the least import path is next.
package gates

import (
	"maps"
	"reflect"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
)

var before = clientfeatures.FeatureGates()

func init() { utilfeature.DefaultMutableFeatureGate = tolerant{utilfeature.DefaultMutableFeatureGate} }

// Restore puts client-go's gates back, unless somebody else than Kubernetes has replaced them.
func Restore() {
	if reflect.TypeOf(clientfeatures.FeatureGates()).Elem().PkgPath() == "k8s.io/kubernetes/pkg/features" {
		clientfeatures.ReplaceFeatureGates(before)
	}
}

// tolerant are gates to which those of a name that is there already are not added.
type tolerant struct {
	featuregate.MutableVersionedFeatureGate
}

func (t tolerant) Add(features map[featuregate.Feature]featuregate.FeatureSpec) error {
	return t.MutableVersionedFeatureGate.Add(missing(t, features))
}

func (t tolerant) AddVersioned(features map[featuregate.Feature]featuregate.VersionedSpecs) error {
	return t.MutableVersionedFeatureGate.AddVersioned(missing(t, features))
}

func missing[S any](t tolerant, features map[featuregate.Feature]S) map[featuregate.Feature]S {
	there, left := t.GetAllVersioned(), maps.Clone(features)
	maps.DeleteFunc(left, func(name featuregate.Feature, _ S) bool {
		_, ok := there[name]
		return ok
	})
	return left
}
