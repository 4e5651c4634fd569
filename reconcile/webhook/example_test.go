package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

// A Gadget of this webhook cannot shrink.
func ExampleValidate() {
	h := webhook.Validate(v1, func(_ context.Context, a *webhook.Admission[*Gadget]) (field.ErrorList, error) {
		if a.Old != nil && a.Object != nil && a.Object.Spec.Size < a.Old.Spec.Size {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "size"), "cannot shrink")}, nil
		}
		return nil, nil
	})
	req := httptest.NewRequest(http.MethodPost, "/validate", strings.NewReader(`{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
			"uid": "1", "operation": "UPDATE", "name": "a",
			"kind": {"group": "webhook.thermostat.example", "version": "v1", "kind": "Gadget"},
			"object": {"spec": {"size": 1}}, "oldObject": {"spec": {"size": 2}}
		}}`))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	answer := w.Body.String()
	fmt.Println(strings.Contains(answer, `"allowed":false`), strings.Contains(answer, "cannot shrink"))
	// Output: true true
}
