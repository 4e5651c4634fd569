package check

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// authorities are the Secrets with the certificates of the cluster one, which its user provides: it would take long to
// make keys in each run.
var authorities = sync.OnceValue(func() string {
	all := secret.NewCertificatesForInitialControlPlane(&bootstrapv1.ClusterConfiguration{})
	if err := all.Generate(); err != nil {
		panic(err)
	}
	var text strings.Builder
	for _, c := range all {
		s := c.AsSecret(client.ObjectKey{Namespace: "default", Name: "one"}, metav1.OwnerReference{})
		s.OwnerReferences = nil
		s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		data, err := yaml.Marshal(s)
		if err != nil {
			panic(err)
		}
		text.Write(append(data, "---\n"...))
	}
	return text.String()
})

// machine is one of the cluster one, with its KubeadmConfig.
func machine(name, labels, config string) string {
	return fmt.Sprintf(`
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfig
metadata: {name: %[1]s, namespace: default, labels: {cluster.x-k8s.io/cluster-name: one}}
spec:
  %[3]s
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: %[1]s, namespace: default, labels: {cluster.x-k8s.io/cluster-name: one%[2]s}}
spec:
  clusterName: one
  version: v1.35.0
  bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfig, name: %[1]s}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: GenericInfrastructureMachine, name: %[1]s}
---
`, name, labels, config)
}

// drawn removes what is drawn at random: the tokens by which nodes join, and the data that has them.
func drawn(o *unstructured.Unstructured) {
	switch {
	case strings.HasPrefix(o.GetName(), "bootstrap-token-"):
		o.Object = nil
	case o.GetKind() == "KubeadmConfig":
		unstructured.RemoveNestedField(o.Object, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")
	case o.GetKind() == "Secret":
		unstructured.RemoveNestedField(o.Object, "data", "value")
	}
}

// TestKubeadmConfig: the first machine of the control plane gets its data before those that join. One worker comes
// later, another one goes.
func TestKubeadmConfig(t *testing.T) {
	const (
		cluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: one, namespace: default}
spec:
  controlPlaneEndpoint: {host: one.example.com, port: 6443}
---
`
		control = `, cluster.x-k8s.io/control-plane: ""`
		first   = `initConfiguration: {nodeRegistration: {kubeletExtraArgs: [{name: v, value: "2"}]}}`
		joins   = `joinConfiguration: {nodeRegistration: {kubeletExtraArgs: [{name: v, value: "2"}]}}`
	)
	check(t, configurations, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{core},
		Steps: append(reconciletest.ApplyYAML(cluster+authorities()+machine("control", control, first)+
			machine("old", "", joins), machine("web", "", joins+"\n  preKubeadmCommands: [echo web]")),
			reconciletest.Delete("machines.cluster.x-k8s.io", "default", "old")),
		Mask: drawn,
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for _, name := range []string{"control", "web"} {
				c, err := there[*bootstrapv1.KubeadmConfig](s, "kubeadmconfigs", "default", name)
				data, err2 := there[*corev1.Secret](s, "secrets", "default", name)
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				errs = append(errs, want("secret of "+name, c.Status.DataSecretName, name),
					want("type of "+name, data.Type, clusterv1.ClusterSecretType),
					want("token of "+name, c.Spec.JoinConfiguration.Discovery.BootstrapToken.Token != "",
						name == "web"))
			}
			return errors.Join(append(errs, gone[*bootstrapv1.KubeadmConfig](s, "kubeadmconfigs", "default", "old"),
				gone[*corev1.Secret](s, "secrets", "default", "old"))...)
		},
	})
}

// stored is the step in which a definition is changed to store its objects in a version. The typed client of
// definitions writes protobuf unless it is told another format, and the server reads JSON.
func stored(name, version string) reconciletest.Step {
	return reconciletest.StepFunc("store "+name+" at "+version, func(ctx context.Context, cfg *rest.Config) error {
		cfg = rest.CopyConfig(cfg)
		cfg.ContentType = runtime.ContentTypeJSON
		clients, err := apiextensions.NewForConfig(cfg)
		if err != nil {
			return err
		}
		all := clients.ApiextensionsV1().CustomResourceDefinitions()
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			d, err := all.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for i := range d.Spec.Versions {
				d.Spec.Versions[i].Storage = d.Spec.Versions[i].Name == version
			}
			_, err = all.Update(ctx, d, metav1.UpdateOptions{})
			return err
		})
	})
}

// TestCRDMigrator: a definition stores its objects in an older version for a while, as before an upgrade.
func TestCRDMigrator(t *testing.T) {
	const (
		definition = "kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io"
		template   = `
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: %s, namespace: default}
spec: {template: {spec: {preKubeadmCommands: [echo]}}}
---
`
	)
	check(t, migrator, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(fmt.Sprintf(template, "one")+fmt.Sprintf(template, "two")),
			stored(definition, "v1beta1"), reconciletest.ApplyYAML(fmt.Sprintf(template, "three"))[0],
			stored(definition, "v1beta2")),
		Settled: func(s *reconciletest.Server) error {
			d, err := there[*apiextensionsv1.CustomResourceDefinition](s, "customresourcedefinitions", "", definition)
			if err != nil {
				return err
			}
			return errors.Join(want("stored versions", d.Status.StoredVersions, []string{"v1beta2"}),
				want("observed", d.Annotations[clusterv1.CRDMigrationObservedGenerationAnnotation],
					strconv.FormatInt(d.Generation, 10)))
		},
	})
}
