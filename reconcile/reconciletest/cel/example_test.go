package cel_test

import (
	"context"
	"fmt"
	"log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ranges.example.com}
spec:
  group: example.com
  names: {kind: Range, plural: ranges}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          min: {type: integer}
          max: {type: integer}
        x-kubernetes-validations:
        - {rule: self.min <= self.max, message: min is above max}
`

// A rule of a custom resource refuses an object, as on a real server.
func Example() {
	resources, err := reconciletest.ReadCRDs([]byte(definition))
	if err != nil {
		log.Fatal(err)
	}
	server, err := reconciletest.Start(reconciletest.Options{Resources: resources, Rules: cel.Rules{}})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	_, err = dynamic.NewForConfigOrDie(server.Config()).Resource(resources[0].GroupVersionResource).
		Namespace("default").Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Range", "metadata": map[string]any{"name": "a"},
		"min": int64(3), "max": int64(2)}}, metav1.CreateOptions{})
	fmt.Println(err)
	// Output: Range.example.com "a" is invalid: <nil>: Invalid value: min is above max
}
