package reconciletest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A handler stands for the webhook that testdata/webhooks.yaml registers. It refuses ConfigMaps without data, and then
// it is down.
func ExampleServer_InjectWebhooks() {
	judge := func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		var cm corev1.ConfigMap
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := json.Unmarshal(review.Request.Object.Raw, &cm); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: len(cm.Data) > 0}
		_ = json.NewEncoder(w).Encode(review)
	}
	server, err := reconciletest.Start(reconciletest.Options{
		Manifests: []string{"testdata/webhooks.yaml"},
		Webhooks:  map[string]http.Handler{"judge.judges.svc": http.HandlerFunc(judge)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	maps := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
	create := func(name string, data map[string]string) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
		_, err := maps.Create(context.Background(), cm, metav1.CreateOptions{})
		text, _, _ := strings.Cut(fmt.Sprint(err), " Post")
		fmt.Println(name, text)
	}
	create("a", map[string]string{"x": "y"})
	create("b", nil)
	server.InjectWebhooks(func(call reconciletest.WebhookCall) reconciletest.Fault {
		fmt.Println("called:", call.URL)
		return reconciletest.ConnectionRefused
	})
	create("c", map[string]string{"x": "y"})
	// Output:
	// a <nil>
	// b admission webhook "judge.example.com" denied the request without explanation
	// called: https://judge.judges.svc:443/judge
	// c Internal error occurred: failed calling webhook "judge.example.com": failed to call webhook:
}
