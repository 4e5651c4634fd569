package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// patchObject answers a PATCH of any of the four kinds. Only an apply creates what is not there.
func (s *Server) patchObject(c *call) (object, bool, error) {
	kind := types.PatchType(c.media)
	switch {
	case kind == types.JSONPatchType, kind == types.MergePatchType, kind == types.ApplyYAMLPatchType:
	case kind == types.StrategicMergePatchType && !c.resource.custom():
	default:
		err := unsupportedMediaType(string(types.JSONPatchType), string(types.MergePatchType),
			string(types.ApplyYAMLPatchType))
		if !c.resource.custom() {
			// where built-in kinds are served, it is another part of the server that answers
			err.ErrStatus.Details = &metav1.StatusDetails{}
		}
		return nil, false, err
	}
	var opts metav1.PatchOptions
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&c.query, &opts, nil); err != nil {
		return nil, false, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidatePatchOptions(&opts, kind); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "",
			errs)
	}
	apply := kind == types.ApplyYAMLPatchType
	return s.change(c, apply && c.Subresource == "", func(live object) (object, error) {
		var o object
		var err error
		if apply {
			o, err = s.applied(c, live, opts)
		} else {
			o, err = s.patched(c, kind, live)
		}
		if err != nil {
			return nil, err
		}
		switch {
		case o.GetUID() != "" && live == nil:
			return nil, apierrors.NewConflict(c.Resource.GroupResource(), c.Name,
				fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found",
					o.GetUID()))
		case o.GetName() != c.Name && o.GetName() != "":
			return nil, apierrors.NewBadRequest(
				fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), c.Name))
		}
		return o, sameNamespace(c, o)
	})
}

// patched applies a JSON patch, a merge patch or a strategic merge patch.
func (s *Server) patched(c *call, kind types.PatchType, live object) (object, error) {
	before, err := jsonOf(live)
	if err != nil {
		return nil, err
	}
	if !json.Valid(c.body) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	var after []byte
	switch kind {
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(c.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if after, err = patch.Apply(before); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schemaless, "",
				err.Error(), 0, false)
		}
	case types.MergePatchType:
		if err := json.Unmarshal(c.body, &map[string]any{}); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		after, err = jsonpatch.MergePatch(before, c.body)
		if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
			err = apierrors.NewBadRequest(err.Error())
		}
		if err != nil {
			return nil, err
		}
	default:
		after, err = strategicpatch.StrategicMergePatch(before, c.body, c.resource.make())
		switch err {
		case nil:
		case mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList,
			mergepatch.ErrBadPatchFormatForRetainKeys,
			mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat:
			return nil, apierrors.NewBadRequest(err.Error())
		case mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys:
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schemaless, "",
				err.Error(), 0, false)
		default:
			return nil, err
		}
	}
	invalid := func(err error) error {
		return apierrors.NewInvalid(schema.GroupKind{}, "",
			field.ErrorList{field.Invalid(field.NewPath("patch"), string(after), err.Error())})
	}
	o, found, err := s.read(c.resource, runtime.ContentTypeJSON, after)
	if err != nil {
		return nil, invalid(err)
	}
	var patch any
	twice, err := kjson.UnmarshalStrict(c.body, &patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if kind == types.JSONPatchType {
		for i := range twice {
			twice[i] = fmt.Errorf("json patch %w", twice[i])
		}
	}
	if kind == types.StrategicMergePatchType {
		invalid = func(err error) error {
			return apierrors.NewInvalid(schema.GroupKind{}, "",
				field.ErrorList{field.Invalid(field.NewPath("patch"), fmt.Sprintf("%+v", patch), err.Error())})
		}
	}
	if err := c.strictly(append(twice, found...), invalid); err != nil {
		return nil, err
	}
	c.resource.applyDefaults(o)
	return c.resource.fieldManagers[c.Subresource].UpdateNoErrors(copyOf(live), o, c.manager()).(object), nil
}

// linesOf returns what a YAML decoder complains of, a line each.
func linesOf(err error) (found []error) {
	_, list, ok := strings.Cut(err.Error(), "unmarshal errors:\n")
	if !ok {
		return []error{err}
	}
	for line := range strings.SplitSeq(list, "\n") {
		found = append(found, errors.New(strings.TrimSpace(line)))
	}
	return found
}

// applied merges the configuration of a server-side apply.
func (s *Server) applied(c *call, live object, opts metav1.PatchOptions) (object, error) {
	config := &unstructured.Unstructured{Object: map[string]any{}}
	asJSON, err := yaml.YAMLToJSON(c.body)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &config.Object) // as all stored objects are decoded
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	if err := yaml.UnmarshalStrict(c.body, &map[string]any{}); err != nil {
		if err := c.strictly(linesOf(err), func(
			error) error {
			return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
		}); err != nil {
			return nil, err
		}
	}
	if c.resource.schema != nil {
		if err := c.resource.schema.merges(config.Object); err != nil {
			return nil, err
		}
	}
	if live == nil {
		live = c.resource.make()
	}
	merged, err := c.resource.fieldManagers[c.Subresource].Apply(copyOf(live), config, opts.FieldManager,
		opts.Force != nil && *opts.Force)
	if err != nil {
		return nil, err
	}
	o := merged.(object)
	o.GetObjectKind().SetGroupVersionKind(c.resource.gvk())
	if c.resource.schema != nil { // the merge has kept what is below an object without properties
		c.resource.schema.prune(o.(*unstructured.Unstructured).Object)
	}
	if c.resource.family == nil || c.resource.specChanged(o, live) { // else a real server takes what is there
		c.resource.applyDefaults(o)
	}
	return o, nil
}
