package reconciletest

// strictCorpus is about fields that nobody knows, and fields that are there twice.
var strictCorpus = []conversation{
	{"unknown field in a creation", unknown(func(query string) []step {
		return []step{post("cm"+query, "a", `"datum":{"x":"1"}`),
			post("rs"+query, "r", `"spec":{"replica":1,`+specOf(0)[1:]), get("cm/a"), get("rs/r")}
	})},
	{"unknown field in an update", unknown(func(query string) []step {
		return []step{post("cm", "b", ``), put("cm/b"+query, `"data":{"y":"1"},"datum":{"x":"1"}`), get("cm/b")}
	})},
	{"unknown field in a patch", unknown(func(query string) []step {
		return []step{post("cm", "c", ``), merge("cm/c"+query, `{"datum":{"x":"1"}}`),
			jsonPatch("cm/c"+query, `[{"op":"add","path":"/datum","value":1}]`),
			strategic("cm/c"+query, `{"datum":{"x":"1"}}`), get("cm/c")}
	})},
	{"field that is there twice", unknown(func(query string) []step {
		twice := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"data":{"x":"1","x":"2"}}`
		return []step{request("POST", "cm"+query, "application/json", twice), post("cm", "e", ``),
			merge("cm/e"+query, `{"data":{"x":"1"},"data":{"x":"2"}}`),
			jsonPatch("cm/e"+query, `[{"op":"add","op":"add","path":"/data","value":{"z":"1"}}]`), get("cm/e")}
	})},
	{"field that is there twice in an apply", unknown(func(query string) []step {
		return []step{request("PATCH", "cm/f"+query+"&fieldManager=me", "application/apply-patch+yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: f}\ndata: {x: '1'}\ndata: {x: '2'}\n"), get("cm/f")}
	})},
	{"field that is there twice in a custom resource", unknown(func(query string) []step {
		twice := `{"apiVersion":"corpus.example.com/v1","kind":"Gadget","metadata":{"name":"d"},"spec":{"x":"1",` +
			`"x":"2"}}`
		return []step{request("POST", "gadgets"+query, "application/json", twice), post("gadgets", "e", ``),
			merge("gadgets/e"+query, `{"spec":{"x":"1"},"spec":{"x":"2"}}`), get("gadgets/e")}
	})},
	{"field validation of another kind", []step{post("cm?fieldValidation=Sometimes", "a", ``)}},
}

// unknown plays the steps under each way of field validation, on objects that are deleted in between.
func unknown(steps func(query string) []step) (all []step) {
	for _, way := range []string{"Strict", "Warn", "Ignore"} {
		all = append(all, steps("?fieldValidation="+way)...)
		for _, resource := range []string{"cm", "rs", "gadgets"} {
			all = append(all, func(p *player) {
				p.do(p.t.Context(), "DELETE", resource+"?propagationPolicy=Background", "application/json",
					"application/json", "").Body.Close()
			})
		}
	}
	return all
}
