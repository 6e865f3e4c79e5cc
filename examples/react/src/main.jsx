import { createRoot } from 'react-dom/client';

import { Digits } from './Digits.jsx';

createRoot(document.getElementById('root')).render(<Digits />);
