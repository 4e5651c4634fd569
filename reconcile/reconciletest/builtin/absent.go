package builtin

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// errAbsent is the answer to what needs more of a cluster than the object that is written.
var errAbsent = errors.New("package reconciletest/builtin does not model what needs other objects of the cluster")

// noNamespaces stands for a client of namespaces, which a ResourceClaim with adminAccess is looked up by.
type noNamespaces struct {
	corev1client.NamespaceInterface
}

func (noNamespaces) Get(context.Context, string, metav1.GetOptions) (*corev1.Namespace, error) {
	return nil, errAbsent
}

// noTokens stands for what signs tokens of service accounts. It is not asked: the server refuses the subresource.
type noTokens struct{ serviceaccount.TokenGenerator }

// noDiscovery stands for a client of discovery, by which a user's right to the parameters of an admission policy is
// checked.
type noDiscovery struct{ discovery.DiscoveryInterface }

func (noDiscovery) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, errAbsent
}
