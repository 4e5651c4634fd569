package world

import (
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
)

// clients are those of the groups that a world writes to. A clientset has all groups, and would be compiled for every
// test that imports package reconciletest.
type clients struct {
	core      *corev1client.CoreV1Client
	apps      *appsv1client.AppsV1Client
	batch     *batchv1client.BatchV1Client
	discovery *discoveryv1client.DiscoveryV1Client
}

func newClients(cfg *rest.Config) (c clients, err error) {
	through, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return clients{}, err
	}
	var errs [4]error
	c.core, errs[0] = corev1client.NewForConfigAndClient(cfg, through)
	c.apps, errs[1] = appsv1client.NewForConfigAndClient(cfg, through)
	c.batch, errs[2] = batchv1client.NewForConfigAndClient(cfg, through)
	c.discovery, errs[3] = discoveryv1client.NewForConfigAndClient(cfg, through)
	return c, errors.Join(errs[:]...)
}

func (c clients) CoreV1() corev1client.CoreV1Interface                { return c.core }
func (c clients) AppsV1() appsv1client.AppsV1Interface                { return c.apps }
func (c clients) BatchV1() batchv1client.BatchV1Interface             { return c.batch }
func (c clients) DiscoveryV1() discoveryv1client.DiscoveryV1Interface { return c.discovery }

// resources returns what the server serves of a version.
func (c clients) resources(ctx context.Context, version string) (*metav1.APIResourceList, error) {
	path := "/apis/" + version
	if !strings.Contains(version, "/") {
		path = "/api/" + version
	}
	list := &metav1.APIResourceList{}
	return list, c.core.RESTClient().Get().AbsPath(path).Do(ctx).Into(list)
}
