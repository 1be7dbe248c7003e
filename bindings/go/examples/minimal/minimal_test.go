package main

// The program is its own example: go test compares what it prints.
func Example() {
	main()
	// Output:
	// token 19 attends to 20 tokens: 9.50 (expected 9.50)
	// block table: [0 1]
}
