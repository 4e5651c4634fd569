package informer

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// Apply makes a server-side apply of an apply configuration: a type of k8s.io/client-go/applyconfigurations, a type of
// your own that has a method IsApplyConfiguration(), or what [ApplyUnstructured] returns. A plain struct such as T is
// none: it encodes the fields that you have not set as well, and you would own their zero values.
//
// opts must have a FieldManager. The configuration names the object; if it has no namespace, apiVersion or kind, it
// gets those of the client. [github.com/thermostat-go/thermostat/reconcile/objects.Apply] explains conflicts.
func (r *Resource[T]) Apply(ctx context.Context, config runtime.ApplyConfiguration,
	opts metav1.ApplyOptions) (T, error) {
	return r.apply(ctx, config, opts)
}

// ApplyStatus is Apply for the status alone, if the resource has that subresource.
func (r *Resource[T]) ApplyStatus(ctx context.Context, config runtime.ApplyConfiguration,
	opts metav1.ApplyOptions) (T, error) {
	return r.apply(ctx, config, opts, "status")
}

// ApplyUnstructured makes an apply configuration of an unstructured object. You will own each field that it has, so do
// not make it of an object that was read from a server.
func ApplyUnstructured(o *unstructured.Unstructured) runtime.ApplyConfiguration {
	if o == nil {
		return nil
	}
	return unstructuredConfig{o}
}

type unstructuredConfig struct{ *unstructured.Unstructured }

func (unstructuredConfig) IsApplyConfiguration() {}

func (r *Resource[T]) apply(ctx context.Context, config runtime.ApplyConfiguration, opts metav1.ApplyOptions,
	subresources ...string) (none T, err error) {
	switch {
	case kube.IsNil(config):
		return none, r.failure("apply", "", errors.New("the configuration is nil"))
	case opts.FieldManager == "":
		return none, r.failure("apply", "", errors.New("ApplyOptions.FieldManager is empty"))
	}
	at := r.at()
	if err := at.check(); err != nil {
		return none, at.failure("apply", "", err)
	}
	body, head, err := r.format.encodeConfig(config)
	if err == nil {
		err = at.holds(head.Metadata.Namespace)
	}
	if err != nil {
		return none, at.failure("apply", head.Metadata.Name, err)
	}
	q, err := at.about("apply", http.MethodPatch, head.Metadata.Name, subresources...)
	if err != nil {
		return none, err
	}
	patch := opts.ToPatchOptions()
	return r.object(ctx, "apply", head.Metadata.Name,
		q.SetHeader("Content-Type", string(types.ApplyYAMLPatchType)).Body(body), &patch)
}
