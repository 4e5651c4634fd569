package builtin

import (
	"k8s.io/apimachinery/pkg/util/managedfields"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/generated/openapi"
	apiregistrationrest "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/util"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// aggregation has the kind APIService, which a server of its own has, in front of kube-apiserver and in its process.
type aggregation struct{}

func (aggregation) GroupName() string { return apiregistration.GroupName }

func (aggregation) NewRESTStorage(source serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter) (
	genericapiserver.APIGroupInfo, error) {
	return apiregistrationrest.NewRESTStorage(source, options, false), nil
}

// addTypes gives the kinds of the aggregator their types, which client-go does not have.
func addTypes(kinds []reconciletest.Kind) error {
	namer := apiopenapi.NewDefinitionNamer(aggregatorscheme.Scheme)
	config := genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	for i := range kinds {
		k := &kinds[i]
		o, err := aggregatorscheme.Scheme.New(k.GroupVersion().WithKind(k.Kind))
		if err != nil {
			return err
		}
		described, err := builder3.BuildOpenAPIDefinitionsForResources(config, util.GetCanonicalTypeName(o))
		if err != nil {
			return err
		}
		k.Scheme = aggregatorscheme.Scheme
		if k.Types, err = managedfields.NewTypeConverter(described, false); err != nil {
			return err
		}
	}
	return nil
}
