package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// Aggregate has a handler of the test serve a version of an API group behind an APIService, such as
// external.metrics.k8s.io/v1beta1, until the test ends. The API server authenticates and authorizes each request for a
// path below /apis/GROUP/VERSION before it passes it on; the header X-Remote-User names the user. The handler answers
// GET /apis/GROUP/VERSION with an APIResourceList, which is discovery: until it does, the API server passes nothing on,
// and the test fails after a minute. It is also asked for /openapi/v2 and /openapi/v3, and may answer 404. All tests of
// a cluster see the API: only one can serve the same version.
func (c *Cluster) Aggregate(t testing.TB, gv schema.GroupVersion, handler http.Handler) {
	t.Helper()
	if gv.Group == "" || gv.Version == "" || handler == nil {
		t.Fatalf("aggregate %q: an API needs a group, a version and a handler", gv)
	}
	server := httptest.NewTLSServer(handler)
	name := gv.Version + "." + gv.Group
	path := "/apis/" + gv.String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := disaggregate(ctx, c.client, name); err != nil &&
			!c.private { // a cluster of the test's own goes with it
			t.Errorf("take the API %s away: %v", gv, err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	if err := aggregate(t.Context(), c.client, gv, name, server.Listener.Addr().(*net.TCPAddr).Port); err != nil {
		t.Fatalf("aggregate %s: %v", gv, err)
	}
	rest := c.client.Discovery().RESTClient()
	err := eventually(t.Context(), "the API "+gv.String()+" answers", func(ctx context.Context) (bool, error) {
		err := rest.Get().AbsPath(path).Do(ctx).Error()
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// aggregate makes a Service and an APIService of this name. The Service is an external name, since nothing routes to
// the addresses of Services here. The certificate of the server is not checked: it is on the loopback interface.
func aggregate(ctx context.Context, client kubernetes.Interface, gv schema.GroupVersion, name string, port int) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: serviceOf(name)},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, service,
		metav1.CreateOptions{}); err != nil {
		return err
	}
	api, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "insecureSkipTLSVerify": true,
			"groupPriorityMinimum": 100, "versionPriority": 100,
			"service": map[string]any{"namespace": metav1.NamespaceSystem, "name": service.Name, "port": port},
		},
	})
	if err != nil {
		return err
	}
	return client.Discovery().RESTClient().Post().AbsPath(apiServices).Body(api).Do(ctx).Error()
}

func disaggregate(ctx context.Context, client kubernetes.Interface, name string) error {
	return errors.Join(
		client.Discovery().RESTClient().Delete().AbsPath(apiServices, name).Do(ctx).Error(),
		client.CoreV1().Services(metav1.NamespaceSystem).Delete(ctx, serviceOf(name), metav1.DeleteOptions{}),
	)
}

// serviceOf returns the name of the Service of an APIService: without dots, and of no more than 63 characters.
func serviceOf(name string) string {
	name = fmt.Sprintf("test-%s", strings.ReplaceAll(name, ".", "-"))
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}
