package main

// The program is an example: go test compares its output.
func Example() {
	main()
	// Output:
	// token 19 attends to 20 tokens: 9.50 (expected 9.50)
	// block table: [0 1]
}
