package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// conversionReview is the ConversionReview of apiextensions.k8s.io/v1.
type conversionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *conversionRequest  `json:"request,omitempty"`
	Response        *conversionResponse `json:"response,omitempty"`
}

type conversionRequest struct {
	UID               types.UID         `json:"uid"`
	DesiredAPIVersion string            `json:"desiredAPIVersion"`
	Objects           []json.RawMessage `json:"objects"`
}

type conversionResponse struct {
	UID              types.UID         `json:"uid"`
	ConvertedObjects []json.RawMessage `json:"convertedObjects"`
	Result           metav1.Status     `json:"result"`
}

// ask lets the webhook of a definition convert an object. A real server, too, sends one at a time, and says what is
// wrong with the answer in these words.
func (f *family) ask(c *call, of *definition, u *unstructured.Unstructured, to schema.GroupVersionKind) (
	*unstructured.Unstructured, error) {
	failed := func(format string, args ...any) error {
		return fmt.Errorf("conversion webhook for %v "+format, append([]any{u.GroupVersionKind()}, args...)...)
	}
	original, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	kind := metav1.TypeMeta{APIVersion: definitions.GroupVersion().String(), Kind: "ConversionReview"}
	request := conversionReview{TypeMeta: kind, Request: &conversionRequest{UID: reviewUID(f.server),
		DesiredAPIVersion: to.GroupVersion().String(), Objects: []json.RawMessage{original}}}
	var answer conversionReview
	hook := webhook{name: of.Metadata.Name, config: of.Spec.Conversion.Webhook.ClientConfig}
	err = hook.post(f.server, c, conversionPatience, request, &answer)
	if isNotModelled(err) {
		return nil, err
	}
	if err == nil {
		err = answer.judge(request.Request.UID)
	}
	if err != nil {
		return nil, failed("failed: %v", err)
	}
	if n := len(answer.Response.ConvertedObjects); n != 1 {
		return nil, failed("returned %d objects, expected 1", n)
	}
	converted := &unstructured.Unstructured{}
	if err := converted.UnmarshalJSON(answer.Response.ConvertedObjects[0]); err != nil {
		return nil, err
	}
	switch is := converted.GroupVersionKind(); {
	case is.GroupVersion() != to.GroupVersion():
		return nil, failed("returned invalid object at index 0: invalid groupVersion (expected %v, received %v)",
			to.GroupVersion(), is.GroupVersion())
	case is.Kind != to.Kind:
		return nil, failed("returned invalid object at index 0: invalid kind (expected %v, received %v)", to.Kind,
			is.Kind)
	}
	if err := sameIdentity(u, converted); err != nil {
		return nil, failed("returned invalid object: %v", err)
	}
	if err := keepMetadata(u, converted); err != nil {
		return nil, failed("returned invalid metadata: %v", err)
	}
	return converted, nil
}

// judge returns an error for an answer that is none to the review with this UID, or says that the conversion failed.
func (r conversionReview) judge(uid types.UID) error {
	want := definitions.GroupVersion().WithKind("ConversionReview")
	switch {
	case r.GroupVersionKind() != want:
		return fmt.Errorf("expected webhook response of %v, got %v", want, r.GroupVersionKind())
	case r.Response == nil:
		return errors.New("no response provided")
	case r.Response.UID != uid:
		return fmt.Errorf("expected response.uid=%q, got %q", uid, r.Response.UID)
	case r.Response.Result.Status == metav1.StatusSuccess:
		return nil
	case r.Response.Result.Message != "":
		return errors.New(r.Response.Result.Message)
	}
	return fmt.Errorf("response.result.status was '%s', not 'Success'", r.Response.Result.Status)
}

// sameIdentity returns an error if a conversion has made another object.
func sameIdentity(from, to *unstructured.Unstructured) error {
	switch {
	case from.GetName() != to.GetName():
		return fmt.Errorf("must have the same name: %v != %v", from.GetName(), to.GetName())
	case from.GetNamespace() != to.GetNamespace():
		return fmt.Errorf("must have the same namespace: %v != %v", from.GetNamespace(), to.GetNamespace())
	case from.GetUID() != to.GetUID():
		return fmt.Errorf("must have the same UID: %v != %v", from.GetUID(), to.GetUID())
	}
	return nil
}

// keepMetadata gives a converted object the metadata that it had, but for its labels and annotations.
func keepMetadata(from, to *unstructured.Unstructured) error {
	sent, ok := to.Object["metadata"].(map[string]any)
	if !ok {
		return errors.New("missing metadata in converted object")
	}
	kept, ok := runtime.DeepCopyJSONValue(from.Object["metadata"]).(map[string]any)
	if !ok {
		kept = map[string]any{}
	}
	to.Object["metadata"] = kept
	for _, name := range []string{"labels", "annotations"} {
		if sent[name] == nil {
			delete(kept, name)
			continue
		}
		values, ok := sent[name].(map[string]any)
		if !ok {
			return fmt.Errorf("invalid metadata.%s of type %T in converted object", name, sent[name])
		}
		texts := map[string]string{}
		for k, v := range values {
			text, ok := v.(string)
			if !ok {
				return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, k, v)
			}
			texts[k] = text
		}
		errs := validation.ValidateAnnotations(texts, field.NewPath("metadata", "annotation"))
		if name == "labels" {
			errs = metav1validation.ValidateLabels(texts, field.NewPath("metadata", "labels"))
		}
		if len(errs) > 0 {
			return errs.ToAggregate()
		}
		kept[name] = values
	}
	return nil
}
