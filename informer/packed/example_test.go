package packed_test

import (
	"fmt"
	"log"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer/packed"
)

// An object as an informer keeps it: informer.Project(resource, pods.Pack, ...) calls Pack for each.
func Example() {
	configMaps, err := packed.New[*corev1.ConfigMap](packed.Options{})
	if err != nil {
		log.Fatal(err)
	}
	value, err := configMaps.Pack(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data: map[string]string{"long": strings.Repeat("x", 10_000)}})
	if err != nil {
		log.Fatal(err)
	}
	m, err := value.Object()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Name, len(m.Data["long"]))
	// Output: a 10000
}
