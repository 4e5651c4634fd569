package informer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// format says how a [Resource] writes its objects.
type format struct {
	objects wire.Type // without a Kind for unstructured objects and for metadata
	version string    // apiVersion of the resource
	content string    // the type of bodies that carry an object
}

// encode encodes an object with the kind of the resource. It does not change o, which may be shared.
func (f format) encode(o Object) ([]byte, error) {
	if f.objects.Item == metadataType {
		return nil, errors.New("the client has the metadata only, so the rest of the object would be lost: use Patch")
	}
	says := o.GetObjectKind().GroupVersionKind()
	if err := f.sameKind(says.GroupVersion().String(), says.Kind); err != nil {
		return nil, err
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		if says.Kind == "" {
			return nil, errors.New("the unstructured object has no kind")
		}
		content := maps.Clone(u.Object)
		content["apiVersion"] = f.version
		return encodeJSON(content)
	}
	shallow := reflect.New(f.objects.Item)
	shallow.Elem().Set(reflect.ValueOf(o).Elem())
	sent := shallow.Interface().(Object)
	sent.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(f.version, f.objects.Kind))
	if f.content == runtime.ContentTypeProtobuf {
		return runtime.Encode(protobuf.NewSerializer(nil, nil), sent)
	}
	return encodeJSON(sent)
}

// sameKind returns an error if an object is not of the client's resource. What it does not say is not compared.
func (f format) sameKind(apiVersion, kind string) error {
	if apiVersion != "" && apiVersion != f.version {
		return fmt.Errorf("the object is of %s, and the client of %s", kube.Brief(apiVersion), f.version)
	}
	if want := f.objects.Kind; kind != "" && want != "" && kind != want {
		return fmt.Errorf("the object is of kind %s, and the client for objects of kind %s", kube.Brief(kind), want)
	}
	return nil
}

// configHead is what an apply configuration says of its object.
type configHead struct {
	APIVersion, Kind string
	Metadata         struct{ Name, Namespace string }
}

// encodeConfig encodes an apply configuration, with the kind of the resource if it has none.
func (f format) encodeConfig(config runtime.ApplyConfiguration) (body []byte, head configHead, err error) {
	var source any = config
	if u, ok := config.(unstructuredConfig); ok {
		source = u.Object
	}
	if body, err = encodeJSON(source); err != nil {
		return nil, head, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &head) != nil || json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil, head, fmt.Errorf("a %T is no object in JSON", config)
	}
	if err := f.sameKind(head.APIVersion, head.Kind); err != nil {
		return nil, head, err
	}
	switch {
	case head.Kind == "" && f.objects.Kind == "":
		return nil, head, errors.New("the configuration has no kind, and the client knows none")
	case head.Kind == "":
		fields["kind"], _ = encodeJSON(f.objects.Kind)
	case head.APIVersion != "":
		return body, head, nil
	}
	fields["apiVersion"], _ = encodeJSON(f.version)
	body, err = encodeJSON(fields)
	return body, head, err
}

// encodeJSON drops the text of an error of the encoder, which may quote a value.
func encodeJSON(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("a %T cannot be encoded in JSON (%T)", v, err)
	}
	return body, nil
}
