package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Conversion converts objects of one version of a kind to another one. [Convert] makes it.
type Conversion struct {
	from, to schema.GroupVersionKind
	convert  func(object []byte) ([]byte, error)
	mistake  error
}

// Convert makes a Conversion of a function between the Go types of two versions. convert does not change what it is
// given, and must not fail for an object that a user can store: an error makes all requests for that object fail, and
// lists with it. What one version has and the other lacks goes into an annotation, or is lost; so is what the Go types
// do not have.
//
// The metadata of the result is that of the original, whatever convert makes of it, but for labels and annotations:
// they are those of the result if its metadata is not empty.
func Convert[From, To informer.Object](from, to schema.GroupVersion, convert func(From) (To, error)) Conversion {
	before, err1 := kindOf[From](from)
	after, err2 := kindOf[To](to)
	c := Conversion{from: before, to: after, mistake: errors.Join(err1, err2)}
	if c.mistake == nil && before.GroupKind() != after.GroupKind() {
		c.mistake = fmt.Errorf("%s cannot become %s: a conversion is between versions of one kind", before, after)
	}
	if c.mistake == nil && before == after {
		c.mistake = fmt.Errorf("%s is converted to itself", before)
	}
	c.convert = func(object []byte) ([]byte, error) {
		old := newObject[From]()
		if err := decode(object, old); err != nil {
			return nil, fmt.Errorf("the object does not fit its Go type: %w", err)
		}
		result, err := convert(old)
		if err != nil {
			return nil, err
		}
		if reflect.ValueOf(&result).Elem().IsNil() {
			return nil, errors.New("the conversion has returned nil")
		}
		result.GetObjectKind().SetGroupVersionKind(after)
		data, err := json.Marshal(result)
		if err != nil {
			return nil, err
		}
		keepsMetadata := result.GetName() == "" && result.GetGenerateName() == "" && result.GetLabels() == nil &&
			result.GetAnnotations() == nil
		return restore(data, object, keepsMetadata)
	}
	return c
}

// restore gives a converted object the metadata of its original, but for labels and annotations unless those are to be
// kept, too.
func restore(converted, original []byte, all bool) ([]byte, error) {
	var is, was map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(converted, &is), json.Unmarshal(original, &was)); err != nil {
		return nil, err
	}
	var isMeta, wasMeta map[string]json.RawMessage
	for from, into := range map[*map[string]json.RawMessage]json.RawMessage{&isMeta: is["metadata"],
		&wasMeta: was["metadata"]} {
		if into == nil {
			continue
		}
		if err := json.Unmarshal(into, from); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"labels", "annotations"} {
		if all {
			break
		}
		if value, ok := isMeta[name]; ok {
			wasMeta[name] = value
		} else {
			delete(wasMeta, name)
		}
	}
	metadata, err := json.Marshal(wasMeta)
	if err != nil {
		return nil, err
	}
	is["metadata"] = metadata
	return json.Marshal(is)
}

// conversionReview is the ConversionReview of apiextensions.k8s.io/v1, whose Go type is in a module that brings the
// whole API server in.
type conversionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *conversionRequest  `json:"request,omitempty"`
	Response        *conversionResponse `json:"response,omitempty"`

	failure error // why an object could not be converted; Response says so, too
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

const reviewVersion = "apiextensions.k8s.io/v1"

// Conversions makes the Handler of a conversion webhook, for one kind or several. The conversions have to lead from
// each version of a kind to each other one, by steps if need be: with v1 in the middle, four conversions are enough for
// three versions. New reports a version that cannot be reached.
func Conversions(conversions ...Conversion) *Handler {
	c := converter{}
	var errs []error
	for _, step := range conversions {
		if step.mistake != nil {
			errs = append(errs, step.mistake)
			continue
		}
		if c[step.from] == nil {
			c[step.from] = map[schema.GroupVersionKind]Conversion{}
		}
		if _, ok := c[step.from][step.to]; ok {
			errs = append(errs, fmt.Errorf("there are two conversions of %s to %s", step.from, step.to))
		}
		c[step.from][step.to] = step
	}
	if len(conversions) == 0 {
		errs = append(errs, errors.New("there is no conversion"))
	}
	errs = append(errs, c.missing()...)
	h := &Handler{mistakes: errors.Join(errs...)}
	h.answer = func(ctx context.Context, body []byte) (any, string, error) {
		review, err := c.answer(ctx, body)
		if err != nil {
			return nil, "", err
		}
		if review.failure != nil {
			h.failed(ctx, review.failure)
			return review, outcomeFailed, nil
		}
		return review, outcomeConverted, nil
	}
	return h
}

// converter has the conversions by their origins.
type converter map[schema.GroupVersionKind]map[schema.GroupVersionKind]Conversion

// missing says which versions cannot be reached from which.
func (c converter) missing() (errs []error) {
	all := map[schema.GroupVersionKind]bool{}
	for from, steps := range c {
		all[from] = true
		for to := range steps {
			all[to] = true
		}
	}
	versions := slices.SortedFunc(maps.Keys(all), func(a, b schema.GroupVersionKind) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, from := range versions {
		for _, to := range versions {
			if from.GroupKind() == to.GroupKind() && from != to && c.path(from, to) == nil {
				errs = append(errs, fmt.Errorf("no conversion leads from %s to %s", from, to))
			}
		}
	}
	return errs
}

// path returns the fewest conversions that lead from one version to another one.
func (c converter) path(from, to schema.GroupVersionKind) []Conversion {
	byVersion := func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.Version, b.Version) }
	ways := map[schema.GroupVersionKind][]Conversion{from: {}}
	for queue := []schema.GroupVersionKind{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			return ways[at]
		}
		for _, next := range slices.SortedFunc(maps.Keys(c[at]), byVersion) {
			if _, ok := ways[next]; !ok {
				ways[next] = append(slices.Clone(ways[at]), c[at][next])
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// answer converts all objects of a review, or none.
func (c converter) answer(ctx context.Context, body []byte) (*conversionReview, error) {
	var review conversionReview
	if err := decode(body, &review); err != nil {
		return nil, badRequest("the body is no ConversionReview: %v", err)
	}
	if review.APIVersion != reviewVersion || review.Kind != "ConversionReview" || review.Request == nil {
		return nil, badRequest("the body is no ConversionReview of %s with a request", reviewVersion)
	}
	response := &conversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	answer := &conversionReview{TypeMeta: review.TypeMeta, Response: response}
	for _, object := range review.Request.Objects {
		converted, err := c.convert(ctx, object, review.Request.DesiredAPIVersion)
		if err != nil {
			answer.failure = err
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			response.ConvertedObjects = nil
			break
		}
		response.ConvertedObjects = append(response.ConvertedObjects, converted)
	}
	return answer, nil
}

// convert converts one object. An error names the object.
func (c converter) convert(ctx context.Context, object []byte, desired string) ([]byte, error) {
	var is metav1.PartialObjectMetadata
	if err := decode(object, &is); err != nil {
		return nil, fmt.Errorf("an object has no metadata: %w", err)
	}
	gv, err := schema.ParseGroupVersion(desired)
	if err != nil {
		return nil, err
	}
	from, to := is.GroupVersionKind(), gv.WithKind(is.Kind)
	steps := c.path(from, to)
	if steps == nil {
		return nil, fmt.Errorf("there is no conversion of %s to %s", from, to)
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// A panic is caught here, so that the answer names the object.
		lifecycle.Guard(func() { object, err = step.convert(object) }, func(p *lifecycle.PanicError) { err = p })
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s cannot be converted from %s to %s: %w", is.Kind, is.Namespace, is.Name,
				step.from.Version, step.to.Version, err)
		}
	}
	return object, nil
}
